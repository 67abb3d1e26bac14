"""The command `tombolo-sim`. Each subcommand is a thin front of a module of the package."""

import signal
import sys

import typer
from rich.markup import escape

from tombolo_sim.capture import CaptureError
from tombolo_sim.cli import advise, bench_cloud, history, measure, replay, report, sweep, trace
from tombolo_sim.engine import EngineError
from tombolo_sim.jobs import OptionError
from tombolo_sim.measure.checks import HarmfulStore
from tombolo_sim.measure.place import MeasureError
from tombolo_sim.output import OutputError
from tombolo_sim.progress import console
from tombolo_sim.stores import StoreError

app = typer.Typer(
    name="tombolo-sim",
    help="Replays traces of storage requests through the Tombolo gateway's own policies.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
trace.register(app)
replay.register(app)
sweep.register(app)
report.register(app)
advise.register(app)
history.register(app)
measure.register(app)
bench_cloud.register(app)

EXIT_REFUSED = 2
EXIT_HARMFUL = 7
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143


def main() -> None:
    # As Ctrl-C: otherwise the workers of a sweep would go on without anybody.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_TERMINATED))
    try:
        app()
    except HarmfulStore as error:
        _tell(error)
        sys.exit(EXIT_HARMFUL)
    except (EngineError, OptionError, OutputError, StoreError, CaptureError, MeasureError) as error:
        _tell(error)
        sys.exit(EXIT_REFUSED)
    except KeyboardInterrupt:
        console.print("interrupted")
        sys.exit(EXIT_INTERRUPTED)


def _tell(error: Exception) -> None:
    console.print(f"[red]tombolo-sim:[/red] {escape(str(error))}", soft_wrap=True, highlight=False)
