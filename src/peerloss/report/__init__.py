"""Report on a folder of results: tables compared with the paper's, tests, pictures, one page.

``build_report`` computes everything, ``write_report`` writes the page and its files. Pages and pictures need
the extra ``report`` (matplotlib and jinja2); ``build_report`` and ``report_numbers`` do not.
"""

from peerloss._deprecation import renamed
from peerloss.report._exports import report_numbers
from peerloss.report._report import Report, Section, build_report
from peerloss.report._write import check_page_path, write_demo, write_report

__all__ = [
    "Report",
    "Section",
    "build_report",
    "check_page_path",
    "report_numbers",
    "write_demo",
    "write_report",
]

__getattr__ = renamed(__name__, {"figures": "peerloss.report.report_numbers"})
