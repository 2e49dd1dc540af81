//! Colours and shapes that all pictures share.

/// Variables by their meaning, and the classes that use them. Print is always light.
pub const STYLE: &str = "
:root { color-scheme: light dark; --paper: #ffffff; --ink: #24292f; --note: #57606a; --line: #8a939d;
  --frame: #d0d7de; --panel: #f6f8fa; --loss: #2f6fc4; --on-loss: #ffffff; --context: #a9c8f0;
  --carry: #d9d4c5; --repeat: #d0c6ee; --hatch: #8a939d; --bad: #cf222e; --warn: #9a6700; }
@media screen and (prefers-color-scheme: dark) {
  :root { --paper: #0d1117; --ink: #e6edf3; --note: #9198a1; --line: #7d8590; --frame: #3d444d;
    --panel: #151b23; --loss: #4f8fdc; --on-loss: #0d1117; --context: #2c5488; --carry: #5d5847;
    --repeat: #554a86; --hatch: #7d8590; --bad: #ff7b72; --warn: #d29922; } }
@media print { :root { color-scheme: light } }
.picture { font: 12px system-ui, -apple-system, 'Segoe UI', sans-serif; fill: var(--ink);
  print-color-adjust: exact; -webkit-print-color-adjust: exact }
.picture .paper { fill: var(--paper) } .picture .note { fill: var(--note) }
.picture .head { font-weight: 600; font-size: 14px } .picture .strong { font-weight: 600 }
.picture .small { font-size: 11px } .picture .on { fill: var(--on-loss); font-size: 11px }
.picture .loss { fill: var(--loss) } .picture .context { fill: var(--context); stroke: var(--loss) }
.picture .carry { fill: var(--carry) } .picture .repeat { fill: var(--repeat) }
.picture .off { fill: url(#hatch); stroke: var(--hatch) }
.picture .failed { fill: url(#hatch); stroke: var(--bad); stroke-width: 1.5 }
.picture .pending { fill: var(--paper); stroke: var(--warn); stroke-dasharray: 4 3 }
.picture .uncommitted { fill: var(--paper); stroke: var(--line); stroke-dasharray: 1 3 }
.picture .padding { fill: var(--panel); stroke: var(--hatch); stroke-dasharray: 2 2 }
.picture .line { stroke: var(--line); fill: none } .picture .grid { stroke: var(--frame); fill: none }
.picture .cut { stroke: var(--bad); stroke-dasharray: 4 3; fill: none }
.picture .quartiles { fill: var(--note) } .picture .bad { fill: var(--bad) }
.picture .ribbon { opacity: .45; stroke: none } .picture .off.ribbon { fill: var(--hatch); opacity: .18 }
";
