"""All generated blocks by name, as the pages call them between [[[cog and ]]]."""

from pages.api_blocks import api
from pages.engine_blocks import environments, equality, mdptetris, rollout, speed, speed_claim
from pages.kernel_blocks import (
    elementwise,
    lltm,
    sampling_call,
    sampling_claim,
    sampling_cpu,
    sampling_large,
    sampling_range,
    sampling_summary,
)
from pages.literature_blocks import noisy_ce, published
from pages.record_blocks import model_card, record_claim
from pages.score_blocks import first_run, gpu_claim, gpu_training, scores, time_to_target, training

__all__ = [
    "api",
    "elementwise",
    "environments",
    "equality",
    "first_run",
    "gpu_claim",
    "gpu_training",
    "lltm",
    "mdptetris",
    "model_card",
    "noisy_ce",
    "published",
    "record_claim",
    "rollout",
    "sampling_call",
    "sampling_claim",
    "sampling_cpu",
    "sampling_large",
    "sampling_range",
    "sampling_summary",
    "scores",
    "speed",
    "speed_claim",
    "time_to_target",
    "training",
]
