"""Options of a command in groups for --help: those that most people need first."""

import click

FIRST = (
    "--output --target --check --min-sqnr --metric --max-drop --max-time --bits --method "
    "--objective --exclude --all-integers --report --json --verbose --help"
)
GROUPS = {
    "What is quantized, and how": (
        "--qconfig --set --reduce-range --format --improve --fast --costs --dtype --shape "
        "--group-size --scheme --accuracy-level --embedding-bits --bits-average --size"
    ),
    "Samples": (
        "--stats --batch-size --ignore --image-size --image-mean --image-std --feedback "
        "--hold-apart --no-verdict"
    ),
    "Inputs and outputs in integers": (
        "--quantized-input --pixels-mean --pixels-std --pixels-scale --quantized-output"
    ),
    "Search": "--repair --max-runs --max-seconds --journal --front",
    "Files": "--save-plan --save-qconfig --save-stats --annotations",
    "Processes and messages": (
        "--threads --jobs --cluster --run-seconds --run-memory --quiet --debug"
    ),
}
"""Heading -> options under it, in their order."""
TITLES = {name: title for title, names in GROUPS.items() for name in names.split()}
ORDER = " ".join([FIRST, *GROUPS.values()]).split()


class GroupedCommand(click.Command):
    """A command with many options, in GROUPS; one that no group has comes first, too."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the options under their headings."""
        found: dict[str, list[tuple[str, str]]] = {"Options": [], **{title: [] for title in GROUPS}}
        options = [each for each in self.get_params(ctx) if isinstance(each, click.Option)]
        for param in sorted(options, key=_place):
            record = param.get_help_record(ctx)
            if record is not None:
                found[TITLES.get(_name(param), "Options")].append(record)
        for title, records in found.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def _name(param: click.Parameter) -> str:
    """The option's long name."""
    return max(param.opts, key=len)


def _place(param: click.Parameter) -> int:
    name = _name(param)
    return ORDER.index(name) if name in ORDER else FIRST.count("--")
