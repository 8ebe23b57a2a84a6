"""Settings from a YAML file and ``ODDNODE_*``, checked at start.

Precedence: environment, then file, then defaults. ``ODDNODE_SOURCE__URL`` is ``source: {url: ...}``;
lists and mappings are given as JSON. Unknown keys are errors. Relative paths in a file are
relative to that file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings.exceptions import SettingsError as EnvironmentFormError

from detector.core.parameters import Parameters
from detector.errors import SettingsError
from detector.settings_auth import AuthSettings
from detector.settings_delivery import DeliverySettings
from detector.settings_detection import check_parameters
from detector.settings_file import SettingsFile, explain, read_settings_file, stray_variables
from detector.settings_reload import ReloadSettings
from detector.settings_section import Section
from detector.settings_what_if import WhatIfSettings
from detector.source.credentials import without_userinfo
from detector.source.options import MIB, SourceOptions
from grouping.identity import IdentityRules
from grouping.placement import PlacementRules
from grouping.pools import PoolRules, PoolTracker

CONFIG_VARIABLE = "ODDNODE_CONFIG"
TOKEN_VARIABLE = "ODDNODE_API_TOKEN"  # noqa: S105 - a name; commands that ask a service read it
PREFIX = "ODDNODE_"

Seconds = Annotated[float, Field(ge=0, le=10 * 365 * 86400, allow_inf_nan=False)]
PositiveSeconds = Annotated[float, Field(gt=0, le=10 * 365 * 86400, allow_inf_nan=False)]


def _json_in_text(value: object) -> object:
    """Turn lists and mappings that an environment variable gives as JSON into what they are."""
    if not isinstance(value, Mapping):
        return value
    found = dict(value)
    for key, item in found.items():
        if isinstance(item, str) and item[:1] in ("[", "{"):
            try:
                found[key] = json.loads(item)
            except ValueError:
                continue  # then it is a text that begins so, and its own rule judges it
    return found


class SourceSettings(Section):
    """Where samples come from; fields as in `detector.source.options.SourceOptions`.

    Parameters
    ----------
    url
        Base address of VictoriaMetrics or Prometheus, any path prefix included; None when a
        recording is played.
    """

    url: str | None = None
    kind: Literal["auto", "victoriametrics", "prometheus"] = "auto"
    bearer_token: SecretStr | None = None
    bearer_token_file: Path | None = None
    basic_username: str | None = None
    basic_password: SecretStr | None = None
    basic_password_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    insecure_skip_verify: bool = False
    headers: dict[str, SecretStr] = Field(default_factory=dict, max_length=50)
    extra_filters: tuple[str, ...] = Field(default=(), max_length=50)
    connect_timeout_s: PositiveSeconds = 5.0
    read_timeout_s: PositiveSeconds = 20.0
    deadline_s: PositiveSeconds = 25.0
    retries: int = Field(default=1, ge=0, le=5)
    max_response_bytes: int = Field(default=2048 * MIB, ge=1024)
    max_series: int = Field(default=6_000_000, ge=1)
    max_series_per_request: int = Field(default=400_000, ge=1)
    slice_s: PositiveSeconds = 600.0

    @model_validator(mode="after")
    def _one_credential(self) -> SourceSettings:
        if self.url is not None and not self.url.startswith(("http://", "https://")):
            raise ValueError("url must begin with http:// or https://")
        for a, b in (("bearer_token", "bearer_token_file"), ("basic_password", "basic_password_file")):
            if getattr(self, a) is not None and getattr(self, b) is not None:
                raise ValueError(f"{a} and {b} exclude each other")
        has_basic = self.basic_password is not None or self.basic_password_file is not None
        if has_basic and self.basic_username is None:
            raise ValueError("basic_password needs basic_username")
        has_bearer = self.bearer_token is not None or self.bearer_token_file is not None
        if has_bearer and self.basic_username is not None:
            raise ValueError("a bearer token and basic_username exclude each other")
        if (self.key_file is None) != (self.cert_file is None):
            raise ValueError("cert_file and key_file go together")
        return self

    def options(self) -> SourceOptions:
        """Return what the sources take.

        Raises
        ------
        SettingsError
            When there is no address.
        """
        if self.url is None:
            raise SettingsError(
                "source.url (or ODDNODE_SOURCE__URL) is missing: the address of VictoriaMetrics or Prometheus"
            )
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        fields["headers"] = {name: secret.get_secret_value() for name, secret in self.headers.items()}
        for name in ("bearer_token", "basic_password"):
            secret = fields[name]
            fields[name] = None if secret is None else secret.get_secret_value()
        return SourceOptions(**fields)


class CatalogSettings(Section):
    """What is compared: the shipped catalog (`path` None) or another, and files laid over it."""

    path: Path | None = None
    overlays: tuple[Path, ...] = Field(default=(), max_length=50)


class BudgetSettings(Section):
    """What on-call can live with: false alarms per cluster and month (30 days)."""

    false_alarms_per_month: Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)] = 1.0


class CalibrationSettings(Section):
    """File that `oddnode calibrate` made; None for the shipped thresholds."""

    path: Path | None = None


class ScheduleSettings(Section):
    """When evaluations run.

    Parameters
    ----------
    step_s
        Distance between evaluations; also the expected scrape interval.
    evaluation_delay_s
        An evaluation of time t runs at t plus this, so that late samples are there.
    backfill_s
        How far back the window is filled at start, and how far a gap is caught up.
    fetch_chunk_steps
        Steps fetched at once while filling or catching up, at most; fewer when they are large.
    tick_timeout_s
        A fetch that hangs for longer is given up; must exceed ``source.deadline_s``.
    pool_query_s
        How often the pool query, if there is one, is asked.
    """

    step_s: Annotated[float, Field(ge=1, le=3600, allow_inf_nan=False)] = 30.0
    evaluation_delay_s: Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)] = 30.0
    backfill_s: Annotated[float, Field(ge=0, le=86400, allow_inf_nan=False)] = 1800.0
    fetch_chunk_steps: int = Field(default=20, ge=1, le=1000)
    tick_timeout_s: PositiveSeconds = 60.0
    pool_query_s: PositiveSeconds = 300.0


class StoreSettings(Section):
    """Where incidents are kept.

    Parameters
    ----------
    path
        SQLite file; its folder must exist and be writable.
    url
        PostgreSQL database in place of the file, ``postgresql://user@host:5432/database``; None for the file.
    password_file
        File with the password of `url`, read again when it changes.
    retention_days
        Cleared incidents are deleted after this many days.
    lock_wait_s
        How long to wait at start for another evaluator to let go of the store.
    snapshot_s
        How often the learnt state is saved at least.
    """

    path: Path = Path("oddnode.db")
    url: SecretStr | None = None
    password_file: Path | None = None
    retention_days: float = Field(default=90.0, gt=0, le=36500)
    lock_wait_s: Seconds = 30.0
    snapshot_s: PositiveSeconds = 600.0

    @model_validator(mode="after")
    def _an_address(self) -> StoreSettings:
        if self.url is None:
            if self.password_file is not None:
                raise ValueError("password_file needs url")
        elif not self.url.get_secret_value().startswith(("postgresql://", "postgres://")):
            raise ValueError("url must begin with postgresql://")
        return self


class HttpSettings(Section):
    """Where the REST interface listens; port 0 takes a free one.

    Parameters
    ----------
    tls_cert, tls_key
        PEM files of the certificate with its chain and of its key; without them it is plain HTTP.
    """

    host: str = Field(default="127.0.0.1", min_length=1, max_length=255)
    port: int = Field(default=8080, ge=0, le=65535)
    tls_cert: Path | None = None
    tls_key: Path | None = None

    @model_validator(mode="after")
    def _both(self) -> HttpSettings:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key go together")
        return self


class LogSettings(Section):
    """What is logged to standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["text", "json"] = "text"


class RecordingSettings(Section):
    """A recorded incident to play as if it were live.

    Parameters
    ----------
    path
        Folder of the recording; None for a live database.
    speed
        Recorded seconds per second.
    use_pool
        True to take pool and spares from the recording instead of finding them.
    at
        Epoch seconds at which to begin to play; what lies before is evaluated at once. None for its start.
    """

    path: Path | None = None
    at: Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False)] | None = None
    speed: Annotated[float, Field(gt=0, le=10_000, allow_inf_nan=False)] = 30.0
    use_pool: bool = False


class Settings(BaseSettings):
    """All settings in effect."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        extra="forbid",
        validate_default=True,
        env_ignore_empty=True,
    )

    source: SourceSettings = Field(default_factory=SourceSettings)
    catalog: CatalogSettings = Field(default_factory=CatalogSettings)
    identity: Annotated[IdentityRules, BeforeValidator(_json_in_text)] = Field(default_factory=IdentityRules)
    placement: Annotated[PlacementRules, BeforeValidator(_json_in_text)] = Field(
        default_factory=PlacementRules
    )
    pools: Annotated[PoolRules, BeforeValidator(_json_in_text)] = Field(default_factory=PoolRules)
    detection: Annotated[Parameters, BeforeValidator(_json_in_text)] = Field(default_factory=Parameters)
    budget: BudgetSettings = Field(default_factory=BudgetSettings)
    calibration: CalibrationSettings = Field(default_factory=CalibrationSettings)
    schedule: ScheduleSettings = Field(default_factory=ScheduleSettings)
    store: StoreSettings = Field(default_factory=StoreSettings)
    http: HttpSettings = Field(default_factory=HttpSettings)
    auth: Annotated[AuthSettings, BeforeValidator(_json_in_text)] = Field(default_factory=AuthSettings)
    log: LogSettings = Field(default_factory=LogSettings)
    recording: RecordingSettings = Field(default_factory=RecordingSettings)
    reload: ReloadSettings = Field(default_factory=ReloadSettings)
    delivery: Annotated[DeliverySettings, BeforeValidator(_json_in_text)] = Field(
        default_factory=DeliverySettings
    )
    what_if: WhatIfSettings = Field(default_factory=WhatIfSettings)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Let the environment win over the file, which comes in as arguments."""
        return env_settings, init_settings

    @model_validator(mode="before")
    @classmethod
    def _one_step(cls, data: object) -> object:
        if isinstance(data, Mapping):
            detection = data.get("detection")
            if isinstance(detection, Mapping) and "step_s" in detection:
                raise ValueError("detection.step_s is not set here: schedule.step_s sets it")
        return data

    @model_validator(mode="after")
    def _consistent(self) -> Settings:
        check_parameters(self.detection)
        PoolTracker(self.pools)  # tells wrong patterns
        if self.pools.query is not None and self.pools.label is None:
            raise ValueError("pools.query needs pools.label: the label of its answer that names the pool")
        schedule, source = self.schedule, self.source
        if schedule.tick_timeout_s <= source.deadline_s:
            raise ValueError(
                f"schedule.tick_timeout_s ({schedule.tick_timeout_s:g}) must be more than "
                f"source.deadline_s ({source.deadline_s:g})"
            )
        # written past validation: the step has one home, and the core reads it from its parameters
        self.__dict__["detection"] = replace(self.detection, step_s=schedule.step_s)
        return self

    def store_path(self) -> Path:
        """File of the store; a played recording has its own and never mixes with live incidents."""
        path = self.store.path
        return path if self.recording.path is None else path.with_name(f"{path.stem}-recording{path.suffix}")

    def describe(self) -> dict[str, Any]:
        """Return the settings in effect as plain values, secrets masked."""
        shown = self.model_dump(mode="json")
        if self.source.url is not None:
            shown["source"]["url"] = without_userinfo(self.source.url)
        return shown


def settings_path(path: Path | None = None, environ: Mapping[str, str] | None = None) -> Path | None:
    """Return the settings file: `path`, or else the one of ``ODDNODE_CONFIG``; None without one."""
    named = (os.environ if environ is None else environ).get(CONFIG_VARIABLE)
    return path if path is not None or not named else Path(named)


def load_settings(path: Path | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """Read and check all settings.

    Parameters
    ----------
    path
        YAML file; None takes ``ODDNODE_CONFIG``, and without that there is no file.
    environ
        Environment to take the file's name from and to check for unknown names; None for the process'.

    Raises
    ------
    SettingsError
        Names the file and line, or the variable, the key and the rule.
    """
    environment = os.environ if environ is None else environ
    path = settings_path(path, environment)
    file = SettingsFile("settings", {}, {}) if path is None else read_settings_file(path)
    own = {name: value for name, value in environment.items() if name.upper() != TOKEN_VARIABLE}
    stray = stray_variables(own, Settings.model_fields, CONFIG_VARIABLE, PREFIX)
    if stray:
        raise SettingsError(f"environment variable {stray[0]} is no setting")
    try:
        return Settings(**file.data)
    except ValidationError as error:
        raise SettingsError(explain(error, file, environment, PREFIX)) from None
    except EnvironmentFormError as error:
        raise SettingsError(f"environment: {' '.join(str(error).split())}") from None
