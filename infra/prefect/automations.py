"""Put this project's automations on the Prefect server of PREFECT_API_URL.

    python infra/prefect/automations.py

Those of the same name are replaced, so the command may be repeated. With COURANT_ALERT_WEBHOOK (an
https:// address that takes a POST with JSON) failed runs are told there as well; the address is
kept on the server, as a block.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import yaml
from prefect.blocks.notifications import CustomWebhookNotificationBlock
from prefect.client.orchestration import PrefectClient, get_client
from prefect.events.schemas.automations import AutomationCore
from prefect.settings import PREFECT_API_URL

FILE = Path(__file__).with_name("automations.yaml")
WEBHOOK = "COURANT_ALERT_WEBHOOK"
BLOCK = "courant-alerts"


def read_automations(block: str | None) -> list[AutomationCore]:
    """Read the automations; those that notify only where there is a block's id for them."""
    content = yaml.safe_load(FILE.read_text())
    found: list[dict[str, Any]] = list(content["automations"])
    for told in content["notifications"] if block else []:
        text = {"subject": told.pop("subject"), "body": told.pop("body")}
        action = {"type": "send-notification", "block_document_id": block, **text}
        found.append({**told, "actions": [action]})
    return [AutomationCore.model_validate(one) for one in found]


async def save_webhook(address: str) -> str:
    """Save the webhook as a block; return the block's id."""
    webhook = CustomWebhookNotificationBlock(
        name=BLOCK, url=address, json_data={"title": "{{subject}}", "text": "{{body}}"}
    )
    return str(await webhook.save(BLOCK, overwrite=True))


async def put(client: PrefectClient, automations: list[AutomationCore]) -> list[str]:
    """Replace the server's automations of these names; return the names."""
    for automation in automations:
        before = await client.read_automations_by_name(automation.name)
        await client.create_automation(automation)
        for old in before:
            await client.delete_automation(old.id)
    return [automation.name for automation in automations]


async def main() -> int:
    """Return the exit code."""
    if not PREFECT_API_URL.value():
        print("error: PREFECT_API_URL names no server; set it to http://HOST:4200/api")
        return 1
    address = os.environ.get(WEBHOOK)
    if address is not None and not address.startswith("https://"):
        print(f"error: {WEBHOOK} is not an https:// address")
        return 1
    block = await save_webhook(address) if address else None
    async with get_client() as client:
        for name in await put(client, read_automations(block)):
            print(name)
    if block is None:
        print(f"nobody is told of failures: {WEBHOOK} is not set")
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
