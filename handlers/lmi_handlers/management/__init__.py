"""The routes by which operators register, describe, change and remove models, as in DJLServing and SageMaker."""
