from djl_python import Input, Output
from djl_python.deepspeed import DeepSpeedService
import helper

try:
    from djl_python.telemetry import telemetry_manager
except ImportError:
    telemetry_manager = None

_service = DeepSpeedService()


def handle(inputs: Input) -> Output:
    from djl_python.rolling_batch import SchedulerRollingBatch

    return _service.inference(inputs)
