#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/commands/commands.h"
#include "app/commands/status_report.h"
#include "base/units.h"

namespace spillway::app {
namespace {

using Json = nlohmann::ordered_json;

std::string by_tier(const RunStatus::ByTier& bytes) {
  return fmt::format("device {}, host {}, nvme {}", format_bytes(bytes[0]), format_bytes(bytes[1]), format_bytes(bytes[2]));
}

std::string ago(double seconds) { return format_duration(seconds) + " ago"; }

std::string first_line(const RunStatus& s) {
  std::string text = fmt::format("{}: step {}", to_string(s.state), s.step);
  if (s.steps) text += fmt::format(" of {}", *s.steps);
  if (s.ranks > 1) text += fmt::format(" on {} ranks", s.ranks);
  if (!s.owner.empty()) text += " (" + s.owner + ")";
  return text + "\n";
}

std::string pace(const RunStatus& s) {
  if (!s.step_s) return "  pace: no step has ended yet\n";
  std::string text = fmt::format("  pace: {} a step, {}", format_duration(*s.step_s), tokens_per_s_text(s));
  if (s.left_s && s.state != RunStatus::State::finished) text += ", left " + format_duration(*s.left_s);
  return text + "\n";
}

// Says which steps a stopped run does again when it goes on: those after its newest checkpoint. State on nvme saves them if it is still
// there, which cannot be seen from the run's folder.
std::string way_on(const RunStatus& s) {
  if (s.state != RunStatus::State::stopped) return "";
  const i64 from = s.checkpoint ? s.checkpoint->step : 0, again = s.step - from;
  std::string text = "  to go on: run the same command again; ";
  if (again <= 0) return text + "no step is done twice\n";
  text += fmt::format("it begins at step {}, so {} step{} done again", from + 1, again, again == 1 ? " is" : "s are");
  if (s.step_s) text += ", about " + format_duration(static_cast<double>(again) * *s.step_s);
  return text + (s.tier_bytes && (*s.tier_bytes)[2] > 0 ? "; none, if the run's state on nvme is still there\n" : "\n");
}

Json tiers(const RunStatus::ByTier& bytes) { return {{"device", bytes[0]}, {"host", bytes[1]}, {"nvme", bytes[2]}}; }

template <class T>
Json maybe(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

}  // namespace

std::string status_text(const RunStatus& s) {
  std::string text = first_line(s);
  if (s.loss)
    text += fmt::format("  loss: {:.4f}{}\n", *s.loss, s.validation_loss ? fmt::format(", validation {:.4f}", *s.validation_loss) : "");
  text += pace(s);
  if (s.slowest_rank) text += fmt::format("  slowest: rank {}, the other ranks wait for it\n", *s.slowest_rank);
  if (s.last_step_age_s) text += "  last step: " + ago(*s.last_step_age_s) + "\n";
  if (s.tier_bytes) text += "  held: " + by_tier(*s.tier_bytes) + "\n";
  if (s.peak_bytes) text += "  peak: " + by_tier(*s.peak_bytes) + "\n";
  if (s.step_s) text += "  a step reads: " + by_tier(s.read_bytes) + "\n  a step writes: " + by_tier(s.written_bytes) + "\n";
  if (s.wear.bytes_per_step > 0) text += "  written to nvme: " + to_text(s.wear, s.endurance_bytes) + "\n";
  text += s.checkpoint ? fmt::format("  last durable checkpoint: step {}, {}\n", s.checkpoint->step, ago(s.checkpoint->age_s))
                       : "  last durable checkpoint: none\n";
  return text + way_on(s);
}

Json status_json(const RunStatus& s) {
  Json all = {
      {"state", to_string(s.state)}, {"owner", s.owner.empty() ? Json() : Json(s.owner)}, {"step", s.step}, {"steps", maybe(s.steps)}};
  all["ranks"] = s.ranks;
  all["slowest_rank"] = maybe(s.slowest_rank);
  all["loss"] = maybe(s.loss);
  all["validation_loss"] = maybe(s.validation_loss);
  all["step_s"] = maybe(s.step_s);
  all["tokens_per_s"] = maybe(s.tokens_per_s);
  all["positions_per_s"] = maybe(s.positions_per_s);
  all["left_s"] = maybe(s.left_s);
  all["last_step_age_s"] = maybe(s.last_step_age_s);
  all["tier_bytes"] = s.tier_bytes ? tiers(*s.tier_bytes) : Json();
  all["peak_bytes"] = s.peak_bytes ? tiers(*s.peak_bytes) : Json();
  all["read_bytes_per_step"] = tiers(s.read_bytes);
  all["written_bytes_per_step"] = tiers(s.written_bytes);
  all["nvme_written_bytes"] = {
      {"per_token", s.wear.bytes_per_token}, {"per_day", s.wear.bytes_per_day}, {"days_to_endurance", maybe(s.wear.days)}};
  all["checkpoint"] = Json();
  if (s.checkpoint) all["checkpoint"] = {{"name", s.checkpoint->name}, {"step", s.checkpoint->step}, {"age_s", s.checkpoint->age_s}};
  return all;
}

int run_status(const StatusConfig& config, Console& console) {
  const RunStatus status = read_run_status(config.run);
  console.result([&] { return status_json(status).dump(2, ' ', false, Json::error_handler_t::replace); },
                 [&] { return status_text(status); });
  return 0;
}

}  // namespace spillway::app
