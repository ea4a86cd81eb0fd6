"""The routes by which operators register, describe, change and remove models, as DJLServing and SageMaker have them."""
