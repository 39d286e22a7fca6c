"""Models that other tools quantized, as ONNX models that ONNX Runtime runs in integers.

    model = import_quantized(quantized, inputs, "model.onnx")

What it takes, and what it does with it (all on copies):

    torch.ao eager and FX     converted                  packed parameters -> int8 weights,
                                                         int32 biases, Q/DQ  (converted, region)
                              prepared, also for QAT     converted with the buffers' numbers first
                                                         (trained)
    torch.ao dynamic          Linear, LSTM, GRU, cells   exported in float, then integers with the
                                                         packed scales  (dequantized, dynamic)
    PT2E programs             converted, prepared        quantize and dequantize operators -> Q/DQ
                                                         (programs, float_results)
    torchao                   after quantize_, QAT       layers with the same integers and scales
                                                         (nn.quantized.dynamic.torchao)
    pytorch_quantization      TensorQuantizer            its amax -> Q/DQ  (tensor_quantizers)
    fake quantization         as an autograd.Function    Div Round Clip Mul -> Q/DQ  (patterns)
    by hand
"""

from onnxq.pytorch.importers.float_results import FloatResults
from onnxq.pytorch.importers.importer import import_quantized
from onnxq.pytorch.importers.int8_weights import ImportedWeights
from onnxq.pytorch.importers.notes import ImportedModelWarning

__all__ = ["FloatResults", "ImportedModelWarning", "ImportedWeights", "import_quantized"]
