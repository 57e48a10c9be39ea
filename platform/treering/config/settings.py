"""The project's settings, `treering.yaml`: who sees the dashboard, what a promotion asks for, the price of power."""

from pydantic import Field

from treering.config.load import read_mapping, validate_section
from treering.config.model import Section
from treering.config.operation import ElectricityConfig
from treering.project import Project


class DashboardSettings(Section):
    """Who may see the dashboard where people sign in."""

    allowed: tuple[str, ...] = Field(
        (), description="e-mail addresses, or *@DOMAIN for every address of a domain; none: nobody"
    )


class Settings(Section):
    """What `treering.yaml` holds; every part may be left out."""

    promotion: dict[str, str] = Field(default={}, description="the level of the audit that an alias asks for, by alias")
    dashboard: DashboardSettings = DashboardSettings()
    electricity: ElectricityConfig = Field(
        ElectricityConfig(), description="of runs of other trainers; an experiment has its own under telemetry"
    )


def read_settings(project: Project) -> Settings:
    """The settings of a project, the defaults where the file is missing.

    Raises:
        ConfigError: the file has an unknown key or a wrong type.
    """
    file = project.settings
    if not file.exists():
        return Settings()
    return validate_section(file, Settings, read_mapping(file, "the project's settings"))
