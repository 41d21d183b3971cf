"""Style sheet of reports."""

STYLE = """
:root{color-scheme:light}
body{font:14px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif;color:#1f2933;
background:#f3f5f7;max-width:1080px;margin:0 auto;padding:28px 20px 60px}
header{display:flex;flex-wrap:wrap;align-items:center;gap:6px 18px;margin-bottom:14px}
h1{font-size:22px;margin:0}
h2{font-size:15px;margin:0 0 10px}
section{background:#fff;border:1px solid #e1e6eb;border-radius:10px;padding:16px 18px;margin-top:14px}
p{margin:0 0 10px}
.verdict{margin:0;padding:2px 12px;border-radius:12px;background:#e8ecf0;color:#44525f;font-size:13px}
.verdict.right{background:#dcf2e5;color:#176a3f}
.verdict.wrong{background:#fbe0dc;color:#9b2c1b}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(130px,1fr));gap:10px}
.tiles div{background:#fff;border:1px solid #e1e6eb;border-radius:10px;padding:10px 14px;color:#5b6b7b;font-size:12px}
.tiles b{display:block;color:#1f2933;font-size:20px;font-weight:600;white-space:nowrap}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
table.narrow{width:auto}table.narrow th,table.narrow td{padding-right:26px}
th{font-weight:600;font-size:12px;color:#5b6b7b;text-align:left;white-space:nowrap}
th,td{padding:5px 10px 5px 0;border-bottom:1px solid #eef1f4;vertical-align:middle}
tr:last-child td{border-bottom:0}
th.number,td.number{text-align:right}
.null{color:#98a4af}
.bar{display:flex;min-width:220px;height:14px;background:#eef1f4;border-radius:3px;overflow:hidden}
.bar i,.legend i{display:block;height:100%}
.legend{font-size:12px;color:#5b6b7b;margin:10px 0 0;display:flex;flex-wrap:wrap;gap:4px 16px}
.legend i{display:inline-block;width:11px;height:11px;border-radius:2px;margin-right:6px;vertical-align:-1px}
i.state{background:#b6533b}i.children{background:#3b6fb6}i.events{background:#b08a2e}i.parent{background:#8a5bb0}
i.working{background:#3b9a6d}i.idle{background:#cfd8df}
pre{background:#f3f5f7;border-radius:6px;padding:10px 12px;margin:0 0 10px;white-space:pre-wrap;overflow-wrap:anywhere}
@media print{body{background:#fff;padding:0}section{break-inside:avoid}}
""".replace("\n", "")
