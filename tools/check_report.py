"""`python tools/check_report.py FILE...`: check report files; every problem is a line, none is exit code 0."""

import sys

from murmuration.reports.check import report_check


def main(paths: list[str]) -> int:
    problems = [f"{path}: {problem}" for path in paths for problem in report_check(path)]
    print("\n".join(problems) or f"{len(paths)} sound")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
