"""The picture of Smart Reply's page in the docs: a message pasted, a suggestion chosen, in a real browser.

python docs/screens_reply.py RUN FOLDER   # a run of `seqloom reply train`, a folder for the browser; docs/reply.png
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

from PIL import Image
from screens import HERE, browser
from selenium.webdriver.common.by import By

from seqloom.serve.app import guarded
from seqloom.serve.runs import Opening, Runs
from seqloom.serve.server import Server
from seqloom.serve.service import Service
from seqloom.serve.smart_reply import opened
from seqloom.web.listening import Address

SIZE = (1100, 1500)
MAIL = """Hi Anna,

are you coming to the party tonight? We start at 7:30.

Best regards,
Peter

On Mon, Nov 3, 2025 at 10:12 AM Anna <anna@example.org> wrote:
> what are you up to this week?"""


def main() -> None:
    run, folder = Path(sys.argv[1]), Path(sys.argv[2]).absolute()
    address = Address(port=0)
    listener = address.bound()
    service = Service.of(Runs([], Opening("cpu", 1)))
    server = Server(guarded(service, replying=opened([run], None, "cpu", 1)), drain=0.0)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    light = browser(folder / "light")
    size = {"width": SIZE[0], "height": SIZE[1], "deviceScaleFactor": 1, "mobile": False}
    light.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    light.get(f"{address.url(listener)}/reply")
    light.find_element(By.ID, "anyway").click()
    light.find_element(By.ID, "text").send_keys(MAIL)
    light.find_element(By.CSS_SELECTOR, "[data-do=suggest]").click()
    time.sleep(2)
    light.find_element(By.CSS_SELECTOR, ".choice").click()
    place = HERE / "reply.png"
    light.save_screenshot(str(place))
    Image.open(place).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(place, optimize=True)
    light.quit()
    server.should_exit = True
    thread.join()
    service.batcher.stop()


if __name__ == "__main__":
    main()
