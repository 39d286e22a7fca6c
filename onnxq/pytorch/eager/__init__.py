"""Names that PyTorch documents for models with stubs: prepare, convert, fuse_modules."""
