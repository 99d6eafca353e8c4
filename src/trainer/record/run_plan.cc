#include "trainer/record/run_plan.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "trainer/node/host.h"
#include "trainer/record/json_reading.h"

namespace spillway::trainer {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uintmax_t kMostPlanBytes = 16 * kMiB;  // a larger file cannot be a plan

Json moved_json(const parallel::TierBytes& m) {
  return {{"read", by_tier_json(m.read)}, {"written", by_tier_json(m.written)}, {"exchanged", m.exchanged}, {"sent", m.sent}};
}

parallel::TierBytes moved_of(const Json& all) {
  return {tiers_in(all, "read"), tiers_in(all, "written"), whole_in(all, "exchanged"), whole_in(all, "sent")};
}

Json levers_json(const Levers& l) {
  return {{"bf16", l.bf16},
          {"on_gpu", l.on_gpu},
          {"split_master_left", l.split_master_left},
          {"low_moments_left", l.low_moments_left},
          {"weights_on_nvme", l.weights_on_nvme},
          {"state_arrays", l.state_arrays},
          {"stripes", l.stripes},
          {"spilled_state_bytes", l.spilled_state_bytes},
          {"spilled_bytes", l.spilled_bytes},
          {"disk_bytes_per_s", l.disk_bytes_per_s},
          {"break_even_tokens", l.break_even_tokens},
          {"tokens", l.tokens}};
}

Levers levers_in(const Json& all) {
  const auto is = [&](const char* key) { return part_in(all, key) == Json(true); };
  Levers l;
  l.bf16 = is("bf16"), l.on_gpu = is("on_gpu");
  l.split_master_left = is("split_master_left"), l.low_moments_left = is("low_moments_left");
  l.weights_on_nvme = is("weights_on_nvme");
  l.state_arrays = static_cast<int>(std::clamp<i64>(whole_in(all, "state_arrays"), 0, 8));
  l.stripes = whole_in(all, "stripes");
  l.spilled_state_bytes = whole_in(all, "spilled_state_bytes"), l.spilled_bytes = whole_in(all, "spilled_bytes");
  l.disk_bytes_per_s = number_in(all, "disk_bytes_per_s").value_or(0);
  l.break_even_tokens = number_in(all, "break_even_tokens").value_or(0);
  l.tokens = whole_in(all, "tokens");
  return l;
}

int small_in(const Json& all, const char* key) { return static_cast<int>(std::clamp<i64>(whole_in(all, key, 1), 0, 1'000'000)); }

}  // namespace

std::filesystem::path run_plan_file(const std::filesystem::path& run) { return run / "plan.json"; }

std::string to_json(const RunPlan& p) {
  Json all{{"began_at_step", p.began_at_step},
           {"model", p.model},
           {"parameters", p.parameters},
           {"trained_parameters", p.trained},
           {"device", p.device},
           {"threads", p.threads},
           {"ranks", p.ranks},
           {"pipeline_stages", p.pipeline_stages},
           {"zero_stage", p.zero_stage},
           {"tokens_per_step", p.tokens_per_step}};
  all["rows"] = Json::array();
  for (const parallel::PlanRow& row : p.rows) all["rows"].push_back({{"what", row.what}, {"bytes", by_tier_json(row.bytes)}});
  all["total_bytes"] = by_tier_json(p.total);
  all["budget_bytes"] = by_tier_json(p.budget);
  all["process_bytes"] = p.process_bytes;
  all["moved_per_step"] = moved_json(p.moved);
  all["predicted_step_s"] = p.step_s;
  all["bound_by"] = p.bound_by;
  all["phase_ms"] = p.phase_ms;
  all["choices"] = p.choices;
  all["levers"] = levers_json(p.levers);
  return all.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::optional<RunPlan> read_run_plan(const std::filesystem::path& run) {
  std::error_code error;
  if (const auto size = std::filesystem::file_size(run_plan_file(run), error); error || size > kMostPlanBytes) return {};
  const Json all = parse_ordered_json(read_whole(run_plan_file(run)).value_or(""));
  if (!all.is_object()) return {};
  RunPlan p;
  p.began_at_step = whole_in(all, "began_at_step");
  p.model = text_in(all, "model"), p.device = text_in(all, "device"), p.bound_by = text_in(all, "bound_by");
  p.parameters = whole_in(all, "parameters"), p.trained = whole_in(all, "trained_parameters");
  p.threads = small_in(all, "threads"), p.ranks = small_in(all, "ranks");
  p.pipeline_stages = small_in(all, "pipeline_stages"), p.zero_stage = small_in(all, "zero_stage");
  p.tokens_per_step = whole_in(all, "tokens_per_step");
  for (const Json& row : part_in(all, "rows")) p.rows.push_back({text_in(row, "what"), tiers_in(row, "bytes")});
  p.total = tiers_in(all, "total_bytes"), p.budget = tiers_in(all, "budget_bytes");
  p.process_bytes = whole_in(all, "process_bytes");
  p.moved = moved_of(part_in(all, "moved_per_step"));
  p.step_s = number_in(all, "predicted_step_s").value_or(0);
  const Json phases = part_in(all, "phase_ms");
  for (const std::string& name : phase_names()) {
    if (const auto ms = number_in(phases, name.c_str())) p.phase_ms[name] = *ms;
  }
  for (const Json& line : part_in(all, "choices")) {
    if (line.is_string()) p.choices.push_back(line.get<std::string>());
  }
  p.levers = levers_in(part_in(all, "levers"));
  return p;
}

}  // namespace spillway::trainer
