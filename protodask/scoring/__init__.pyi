from protodask.scoring.onnx_export import write_onnx as write_onnx
from protodask.scoring.scorer import Scorer as Scorer
