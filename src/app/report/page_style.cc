// The style sheet and the script of a report page. The script shows the values under the mouse pointer. The colours (after Okabe and Ito)
// can be told apart by colour-blind readers; they are darker on white and brighter on black.
#include <fmt/format.h>

#include "app/report/html.h"
#include "app/report/page_parts.h"
#include "trainer/node/version.h"

namespace spillway::app {
namespace {

constexpr const char* kStyle = R"css(
:root{color-scheme:light dark;--bg:#fff;--fg:#1c2126;--muted:#5b6671;--rule:#dfe4e9;--panel:#f5f7f9;--c0:#0067a8;--c1:#c2500a;--c2:#00785a;
--c3:#9d4f86;--c4:#6f6a00;--c5:#4b4fb5;--in:#fff;--forward:#3b82c4;--backward:#d9722e;--weight:#b8609b;--optimizer:#2f9e78;--fetch:#7fb2d9;
--evict:#e0b27a;--reduce:#8c7a00;--exchange:#6a5acd;--data:#0a8f9c;--other:#98a2ab}
@media screen and (prefers-color-scheme:dark){:root{--bg:#14181c;--fg:#e4e8ec;--muted:#9aa6b2;--rule:#2d343b;--panel:#1c2228;--c0:#5fb4ef;
--c1:#ff9552;--c2:#3fcfa2;--c3:#e59bcb;--c4:#d8cf4a;--c5:#a3a6ff;--in:#0d1013;--forward:#5fa8e6;--backward:#f0935a;--weight:#d987bd;
--optimizer:#4cc79c;--fetch:#3f7fb0;--evict:#b98443;--reduce:#c9b53a;--exchange:#9a8cff;--data:#35c3d2;--other:#6c7782}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1640px;padding:16px clamp(12px,2.5vw,40px) 48px;background:var(--bg);color:var(--fg);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
h1{font-size:1.45rem;line-height:1.25;margin:.2em 0;overflow-wrap:anywhere}
h2{font-size:1.12rem;margin:1.9em 0 .5em;overflow-wrap:anywhere}
h3{font-size:1rem;margin:1.2em 0 .4em}
p{margin:.4em 0;max-width:90ch}
.muted{color:var(--muted)}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(150px,1fr));gap:10px;margin:14px 0}
.cards>div{background:var(--panel);border-radius:8px;padding:9px 12px}
.cards b{display:block;font-size:1.22rem;font-weight:600;line-height:1.3;font-variant-numeric:tabular-nums}
.cards span{color:var(--muted);font-size:.84rem;overflow-wrap:anywhere}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,400px),1fr));gap:14px 22px}
figure{margin:10px 0;min-width:0;position:relative;break-inside:avoid}
figure.chart{max-width:780px}
figcaption{font-weight:600}
svg{display:block;width:100%;height:auto;font:13px system-ui,-apple-system,"Segoe UI",Roboto,Arial,sans-serif;overflow:visible}
svg text{fill:var(--muted)}svg text.in{fill:var(--in);pointer-events:none}
.time svg{min-width:720px}
.grid{stroke:var(--rule);fill:none}.axis,.tick{stroke:var(--muted);fill:none}.lane{fill:var(--panel)}
.limit{stroke:var(--muted);stroke-dasharray:6 4;fill:none}text.limit{stroke:none;fill:var(--muted)}
line.at[hidden]{display:none}line.at{stroke:var(--muted);stroke-dasharray:2 3}
polyline{fill:none;stroke-width:1.8;stroke-linejoin:round}.key path{fill:none;stroke-width:2.4}.dash{stroke-dasharray:7 4}
.c0{stroke:var(--c0)}.c1{stroke:var(--c1)}.c2{stroke:var(--c2)}.c3{stroke:var(--c3)}.c4{stroke:var(--c4)}.c5{stroke:var(--c5)}
circle.c0{fill:var(--c0)}circle.c1{fill:var(--c1)}circle.c2{fill:var(--c2)}circle.c3{fill:var(--c3)}circle.c4{fill:var(--c4)}circle.c5{fill:var(--c5)}
.legend{color:var(--muted);font-size:.84rem;display:flex;flex-wrap:wrap;gap:2px 14px}
.legend span{display:inline-flex;align-items:center;gap:6px;overflow-wrap:anywhere}
.legend i{width:12px;height:12px;border-radius:2px;flex:none}
svg.key{width:22px;height:8px;flex:none}
rect,i{fill:var(--other);background:var(--other)}
.k-forward,.k-compute{fill:var(--forward);background:var(--forward)}.k-backward,.k-disk{fill:var(--backward);background:var(--backward)}
.k-backward-weight{fill:var(--weight);background:var(--weight)}.k-optimizer,.k-memory{fill:var(--optimizer);background:var(--optimizer)}
.k-fetch{fill:var(--fetch);background:var(--fetch)}.k-evict{fill:var(--evict);background:var(--evict)}
.k-reduce{fill:var(--reduce);background:var(--reduce)}.k-data{fill:var(--data);background:var(--data)}.k-exchange,.k-ranks{fill:var(--exchange);background:var(--exchange)}
.wide{overflow-x:auto}
.split{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,430px),1fr));gap:0 24px;align-items:start}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;margin:.4em 0}
th,td{padding:4px 18px 4px 0;text-align:left;border-bottom:1px solid var(--rule);vertical-align:top;font-weight:400}
thead th{color:var(--muted);font-size:.86rem}
.n{text-align:right;white-space:nowrap}
.bar{display:inline-block;width:110px;height:9px;background:var(--panel);border-radius:2px;vertical-align:middle}
.bar u{display:block;height:100%;background:var(--c0);border-radius:2px}
pre{background:var(--panel);border-radius:8px;padding:11px 13px;white-space:pre-wrap;overflow-wrap:anywhere;margin:.4em 0;
font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.notes{border-left:4px solid var(--c1);margin:12px 0;padding:4px 14px 4px 26px}
.config td{overflow-wrap:anywhere;min-width:14ch}
summary{cursor:pointer}summary h2{display:inline}
details.run{border-top:2px solid var(--rule);margin-top:28px;padding-top:14px}
#tip{position:fixed;z-index:9;background:var(--fg);color:var(--bg);border-radius:6px;padding:5px 9px;font-size:.84rem;pointer-events:none;
white-space:pre;font-variant-numeric:tabular-nums;max-width:94vw;overflow:hidden}
@media (max-width:560px){.chart svg[role]{font-size:15px}th,td{padding-right:11px}.bar{width:64px}}
@media print{:root{color-scheme:light}body{max-width:none;padding:0;font-size:11px}.time svg{min-width:0}.charts{grid-template-columns:1fr 1fr}
h2{break-after:avoid}pre{break-before:avoid;break-inside:avoid}tr{break-inside:avoid}details:not([open]){display:none}*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
)css";

constexpr const char* kScript = R"js(
(()=>{const tip=document.getElementById('tip');
const units=[v=>String(v),v=>String(v),v=>{const a=['B','KiB','MiB','GiB','TiB','PiB'];let i=0;while(v>=1024&&i<5){v/=1024;i++}return +v.toPrecision(4)+' '+a[i]},
v=>v<1e-3?+(v*1e6).toPrecision(3)+' µs':v<1?+(v*1e3).toPrecision(3)+' ms':+v.toPrecision(3)+' s'];
const list=(p,k)=>p[k]||(p[k]=p.dataset[k].split(' ').map(Number));
for(const svg of document.querySelectorAll('.chart svg[data-x0]')){const d=svg.dataset,at=svg.querySelector('.at');
const hide=()=>{tip.hidden=true;at.setAttribute('hidden','')};
svg.addEventListener('pointerleave',hide);
svg.addEventListener('pointermove',e=>{if(e.target.tagName==='rect')return hide();const box=svg.getBoundingClientRect(),w=svg.viewBox.baseVal.width;
const share=((e.clientX-box.left)/box.width*w-d.l)/(d.r-d.l),step=+d.x0+share*(d.x1-d.x0);if(share<-.02||share>1.02)return hide();
let nearest=null,lines=[];for(const p of svg.querySelectorAll('polyline')){const x=list(p,'x'),y=list(p,'y');let lo=0,hi=x.length-1;
while(hi-lo>1){const m=lo+hi>>1;x[m]<step?lo=m:hi=m}const i=Math.abs(x[lo]-step)<=Math.abs(x[hi]-step)?lo:hi;
if(nearest===null||Math.abs(x[i]-step)<Math.abs(nearest-step))nearest=x[i];lines.push([p.dataset.n,x[i],units[d.u](y[i])])}
if(nearest===null)return;tip.textContent=lines.map(l=>l[0]+' '+l[2]+(lines.length>1&&l[1]!==nearest?' (step '+l[1]+')':'')).join('\n');
tip.textContent='step '+nearest+'\n'+tip.textContent;const px=+d.l+(nearest-d.x0)/(d.x1-d.x0)*(d.r-d.l);at.setAttribute('x1',px);at.setAttribute('x2',px);
at.removeAttribute('hidden');tip.hidden=false;const t=tip.getBoundingClientRect();
tip.style.left=Math.max(4,Math.min(e.clientX+14,innerWidth-t.width-6))+'px';tip.style.top=(e.clientY+t.height+22<innerHeight?e.clientY+16:e.clientY-t.height-10)+'px'})}
})()
)js";

}  // namespace

std::string page_begin(const std::string& title, const std::string& made) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, "
      "initial-scale=1\">\n<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "script-src "
      "'unsafe-inline'\">\n<meta name=\"generator\" content=\"Spillway\">\n<title>{0} - "
      "Spillway</title>\n<style>{1}</style>\n</head>\n<body>\n<header><h1>{0}</h1><p "
      "class=\"muted\">spillway "
      "{2}, {3}</p></header>\n<main>\n",
      escaped(title), kStyle, kVersion, escaped(made));
}

std::string page_end() {
  return fmt::format("</main>\n<div id=\"tip\" role=\"status\" hidden></div>\n<script>{}</script>\n</body>\n</html>\n", kScript);
}

std::string section(const std::string& title, const std::string& body) {
  return body.empty() ? "" : fmt::format("<section><h2>{}</h2>\n{}</section>\n", escaped(title), body);
}

std::string command_box(const std::string& command) { return "<pre>" + escaped(command) + "</pre>\n"; }

}  // namespace spillway::app
