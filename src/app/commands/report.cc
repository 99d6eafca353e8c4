// Implements `spillway report`, which writes one page about one or several runs, from their folders alone.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/commands/commands.h"
#include "app/report/page.h"
#include "app/report/today.h"
#include "base/error.h"
#include "base/units.h"

namespace spillway::app {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

Json point_json(const Measure& measure, const Point& point) {
  return measure.count == 0 ? Json() : Json{{"step", static_cast<i64>(point.step)}, {"value", point.value}};
}

Json run_json(const ReportedRun& run) {
  const History& h = run.history;
  Json one{{"run", run.name}, {"state", to_string(run.status.state)}, {"step", h.last_step}, {"steps", h.steps}, {"tokens", h.tokens}};
  one["seconds"] = h.seconds;
  if (h.steps > 0) {
    const Measure &loss = h.measure("loss"), &held = h.measure("validation_loss");
    one["loss"] = point_json(loss, loss.last);
    one["lowest_loss"] = point_json(loss, loss.least);
    one["validation_loss"] = point_json(held, held.last);
    one["best_validation_loss"] = point_json(held, held.least);
  }
  one["notes"] = run.notes;
  return one;
}

}  // namespace

int run_report(const ReportConfig& config, Console& console) {
  std::vector<ReportedRun> runs;
  for (const std::string& run : config.runs) runs.push_back(read_run(run, buckets_for(config.runs.size())));
  const fs::path out = config.out ? fs::path(*config.out) : (runs.size() == 1 ? fs::path(config.runs[0]) / "report.html" : "report.html");
  const std::string page = report_page(runs, now_text());
  write_page(out, page);
  Json all{{"out", out.string()}, {"bytes", page.size()}};
  for (const ReportedRun& run : runs) {
    all["runs"].push_back(run_json(run));
    for (const std::string& note : run.notes) console.warn(note);
  }
  console.result(console.json() ? all.dump(2, ' ', false, Json::error_handler_t::replace)
                                : fmt::format("{}: {}, {} run{}", out.string(), format_bytes(static_cast<i64>(page.size())), runs.size(),
                                              runs.size() == 1 ? "" : "s"));
  return 0;
}

}  // namespace spillway::app
