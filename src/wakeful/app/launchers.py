"""The launchers of an app, one for each kind of target.

`build_launchers` makes those that need only the store and the settings. `connect_services` adds what is built
on the services, which themselves need the launchers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from wakeful.agents.launcher import AgentLauncher
from wakeful.app.chat import CronTool, StoredConversations
from wakeful.deliver.channels import ChannelSender
from wakeful.deliver.launcher import ChannelLauncher
from wakeful.engine.launcher_registry import LauncherRegistry
from wakeful.engine.metrics import Metrics
from wakeful.launch.address_guard import AddressGuard
from wakeful.launch.budgets import BudgetGate
from wakeful.launch.celery.launcher import celery_launcher
from wakeful.launch.chat.launcher import ChatLauncher, chat_launcher
from wakeful.launch.command import CommandLauncher
from wakeful.launch.command_rules import CommandAllowlist, EnvironmentAllowlist
from wakeful.launch.echo import EchoLauncher
from wakeful.launch.event_callback import EventLauncher
from wakeful.launch.function import DEFAULT_THREADS, FunctionLauncher
from wakeful.launch.queue.launcher import queue_launcher
from wakeful.launch.secrets import Keyring, RunSecrets
from wakeful.launch.webhook import WebhookLauncher
from wakeful.launch.workflow import WorkflowLauncher
from wakeful.service.admin.evolution import EvolutionLauncher
from wakeful.service.services import Services
from wakeful.settings import Settings
from wakeful.store.port import Store


class AppLaunchers(NamedTuple):
    """The launchers of an app by kind, and what other parts of the app use of them."""

    registry: LauncherRegistry
    chat: ChatLauncher
    channels: ChannelSender


def build_launchers(
    store: Store,
    settings: Settings,
    functions: FunctionLauncher,
    keyring: Keyring,
    metrics: Metrics,
    lanes: Mapping[str, int],
    celery: object | None,
) -> AppLaunchers:
    """Return the launchers. `celery` is the Celery app of the program, if it has one."""
    guard = AddressGuard(allow_private=settings.allow_private_targets)
    chat = chat_launcher(settings, guard, store.clock, metrics.record_chat)
    channels = ChannelSender(settings.channels)
    secrets, slots = RunSecrets(keyring, store.clock), sum(lanes.values())
    functions.max_threads = max(DEFAULT_THREADS, slots)
    registry = LauncherRegistry(
        [
            functions,
            WebhookLauncher(secrets, guard, store.clock, metrics.record_webhook, slots=slots),
            EventLauncher(secrets, guard, store.clock, metrics.record_webhook, slots=slots),
            CommandLauncher(CommandAllowlist(settings.commands), EnvironmentAllowlist(settings.command_env)),
            chat,
            queue_launcher(settings, metrics.record_message),
            EchoLauncher(),
            ChannelLauncher(channels),
            celery_launcher(store, settings, celery, metrics.record_message),
        ]
    )
    registry.add(WorkflowLauncher(store, registry.launcher))
    return AppLaunchers(registry, chat, channels)


def connect_services(launchers: AppLaunchers, services: Services, agents: AgentLauncher) -> None:
    """Give the launchers the services that they use, and add those that are built on services."""
    chat = launchers.chat
    chat.budget = BudgetGate(services.store, services.store.clock)
    chat.tools, chat.conversations = CronTool(services), StoredConversations(services)
    launchers.registry.add(agents)
    launchers.registry.add(EvolutionLauncher(services.admin.evolution))
