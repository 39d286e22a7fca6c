"""Parts of scripts/test_versions that run in the environment of one version of ONNX Runtime."""
