"""Samples: batches of {input name: array} to calibrate and verify with, whatever they are kept in.

    open_samples("images.npz", input_specs(model))

    .npz file, or {name: array}   one array per input, named by it; first axis = samples
    .npy file, or one array       the same, for a model with one input
    .safetensors file             as an .npz file
    folder of such files          one sample or one batch per file, in the order of the names
    Images(folder, size, ...)     images, cut to the model's size, with mean and std
    iterable (list, torch         one sample or one batch per item: a dict, an array or tensor for a
      DataLoader, generator),     model with one input, or a tuple in the order of the inputs; one
      or function returning one   further entry of a tuple is taken for the label and left aside

In a file of a folder or an item, an array of the input's rank is a *batch* and runs as it is; an
array of one axis less is a *sample*, and samples are stacked to batches. In the first two kinds, an
array of the input's rank has its samples along the batch axis; one of a rank more is a stack of
whole inputs, one per run. Arrays whose first axes are different ones in the model, and of different
lengths (x (steps, N, I) beside h (1, N, H)), are whole inputs of one run.

An input of rank 0 is one number for a whole batch: a number in each file or item, or, in an .npz
and among arrays by name, one number for all runs (sr=np.array(16000)). ONNX Runtime's
CalibrationDataReader, or another object with its get_next, is an iterable too, and so is NNCF's
Dataset, or another object with its get_inference_data.

The batch size is the model's static batch where it has one, else 1. The last batch may be smaller
when the batch is dynamic; when it is static, left-over samples are an error. Files are read batch
by batch, npz members too, compressed or not, and at most 1 GiB at a time. Only regular files are
opened. Nothing is converted: another dtype, NaN or Inf is an error. But where a model's input is
integers, samples may be the numbers that these stand for.
"""

from onnxq.samples.batches import Batches
from onnxq.samples.images import Images
from onnxq.samples.inputs import InputSpec, as_taken, input_specs
from onnxq.samples.samples import Samples
from onnxq.samples.sources import open_samples

__all__ = ["Batches", "Images", "InputSpec", "Samples", "as_taken", "input_specs", "open_samples"]
