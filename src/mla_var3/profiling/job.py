"""``Job``: a version, its plan, device and settings, which profiling modes pass to each other."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property

from mla_var3 import languages
from mla_var3.devices import Device
from mla_var3.languages import Language
from mla_var3.profiling.settings import Settings
from mla_var3.runtime import registry
from mla_var3.runtime.plan import KernelPlan
from mla_var3.runtime.registry import Version


@dataclass(frozen=True)
class Job:
    """One version to run.

    Attributes:
        version: The version.
        plan: What to run of it.
        device: What open sizes are resolved for; None where nobody asked for one.
        settings: How to run it.
    """

    version: Version
    plan: KernelPlan
    device: Device | None
    settings: Settings

    @classmethod
    def of(cls, plan: KernelPlan, settings: Settings, device: Device | None = None) -> Job:
        """The job of a plan, whose version is found where the settings do not name it."""
        asked = settings.version
        if asked is None:
            version = registry.version_of(plan)
        else:
            version = registry.find(*asked.split()) if isinstance(asked, str) else asked
        return cls(version, plan, device, settings)

    @cached_property
    def language(self) -> Language:
        """The version's language."""
        return languages.find(self.version.language)

    @property
    def tools(self) -> tuple[str, ...]:
        """Distributions whose versions a record states."""
        return self.language.tools

    def with_(self, plan: KernelPlan, device: Device | None = None) -> Job:
        """The same with another plan, and for another device where one is named."""
        made = dataclasses.replace(self, plan=plan, device=device or self.device)
        vars(made)["language"] = self.language  # As is the version, so it is not asked for again.
        return made

    def say(self, text: str) -> None:
        """Tell whoever listens."""
        self.settings.say(text)
