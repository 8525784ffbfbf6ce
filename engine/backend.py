"""Which runner a profile's device gets: captured graphs on a GPU, eager torch elsewhere."""

from typing import TYPE_CHECKING

from playhead.engine.device import choose_device
from playhead.engine.eager_runner import eager_runner
from playhead.engine.profile import Profile
from playhead.engine.runner import Runner

if TYPE_CHECKING:
    from playhead.engine.models.loader import Model as LoadedModel


def device_runner(model: "LoadedModel", profile: Profile) -> Runner:
    """Build the runner of the device that `profile` names; raises ConfigError if it is not there.

    Below capability 8.0 the model runs eagerly in fp16: slow, but it runs.
    """
    tier = choose_device(profile.device, model.config)
    if tier.name == "full":
        from playhead.engine.cuda_runner import cuda_runner  # Triton: only where it is used

        return cuda_runner(model, profile)
    if tier.name == "cpu":
        return eager_runner(model, profile)
    import torch

    from playhead.engine.models.loader import Model

    device, dtype = torch.device(tier.device), getattr(torch, tier.dtype)
    return eager_runner(Model(model.folder, model.config, device, dtype), profile)
