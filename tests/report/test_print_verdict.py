from __future__ import annotations

from onnxq.quantized.output_verdict import Answers, OutputVerdict
from onnxq.quantized.verdict import InputSource, Verdict
from onnxq.report.print_verdict import Line, fitting, verdict_lines


def test_figures_of_boxes_are_said_where_rows_are_few() -> None:
    layout = "'output0' (1, 22, 2100): axis 1, format xywh, objectness no, scores probabilities"
    verdict = Verdict(
        input_source=InputSource.UNSEEN,
        samples=32,
        samples_in_all=32,
        outputs=(OutputVerdict("output0", 37.4),),
        collapse=None,
        speedup=1.87,
        float_bytes=100,
        quantized_bytes=27,
        integer_nodes=220,
        float_nodes=103,
        answers=(Answers("boxes", "F1", 0.85, 22, layout),),
    )
    more = [Line("what comes behind", 1)] * 12
    said = [line.text for line in fitting([*verdict_lines(verdict), *more])]
    assert "    boxes: F1 0.850 beside float's 22" in said
