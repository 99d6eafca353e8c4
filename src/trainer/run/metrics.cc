#include "trainer/run/metrics.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace spillway::trainer {
namespace {

using Json = nlohmann::ordered_json;

void put(Json& row, const char* key, double value) {
  row[key] = value;  // the JSON library prints a non-finite number as null
  if (!std::isfinite(value)) row["nonfinite"] = std::isnan(value) ? "nan" : "inf";
}

Json by_tier(const std::array<i64, offload::kTiers>& bytes) { return {{"device", bytes[0]}, {"host", bytes[1]}, {"nvme", bytes[2]}}; }

// Adds the keys about the wear of the drives. If the run writes nothing to nvme, no key is added.
void put_wear(Json& row, const Wear& wear) {
  if (!(wear.bytes_per_step > 0)) return;
  row["nvme_written_per_step"] = wear.bytes_per_step;
  row["nvme_written_per_token"] = wear.bytes_per_token;
  row["nvme_written_per_day"] = wear.bytes_per_day;
  if (wear.days) row["days_to_endurance"] = *wear.days;
}

Json profile_json(const ProfileRow& p) {
  Json row = {{"kind", p.kind}, {"lane", p.lane}, {"op", p.op.empty() ? Json() : Json(p.op)}, {"ms", p.ms}, {"share", p.share}};
  row["bytes_per_s"] = p.bytes_per_s ? Json(*p.bytes_per_s) : Json();
  row["flops_per_s"] = p.flops_per_s ? Json(*p.flops_per_s) : Json();
  row["ceiling"] = p.ceiling ? Json(*p.ceiling) : Json();
  row["ceiling_name"] = p.ceiling_name;
  return row;
}

}  // namespace

std::string to_json(const MetricsRow& m) {
  Json row;
  row["step"] = m.step;
  put(row, "loss", m.result.loss);
  put(row, "grad_norm", m.result.grad_norm);
  put(row, "lr", m.learning_rate);
  row["tokens"] = m.result.data_tokens;
  row["positions"] = m.positions;
  row["samples"] = m.samples;
  put(row, "tokens_per_s", static_cast<double>(m.result.data_tokens) / m.seconds);
  put(row, "positions_per_s", static_cast<double>(m.positions) / m.seconds);
  put(row, "samples_per_s", static_cast<double>(m.samples) / m.seconds);
  put(row, "step_ms", m.seconds * 1e3);
  row["phase_ms"] = m.phases;
  row["loss_scale"] = m.result.loss_scale;
  row["skipped"] = m.result.skipped;
  row["clipped"] = m.result.clipped;
  row["redo"] = m.result.redo;
  row["tier_bytes"] = by_tier(m.tier_bytes);
  row["peak_bytes"] = by_tier(m.peak_bytes);
  row["read_bytes"] = by_tier(m.moved.read);
  row["written_bytes"] = by_tier(m.moved.written);
  if (m.ranks > 1) {
    row["exchanged_bytes"] = m.moved.exchanged;
    row["sent_bytes"] = m.moved.sent;
    row["slowest_rank"] = m.slowest_rank;
    put(row, "slowest_rank_waits", m.slowest_wait);
  }
  put_wear(row, m.wear);
  row["began_at_step"] = m.began_at_step;
  put(row, "flops_per_s", m.flops_per_s);
  row["matmul_share"] = m.matmul_share ? Json(*m.matmul_share) : Json();
  row["bound_by"] = m.bound_by;
  put(row, "predicted_ms", m.predicted_ms);
  if (m.validation_loss) put(row, "validation_loss", *m.validation_loss);
  if (m.validation_accuracy) put(row, "validation_accuracy", *m.validation_accuracy);
  return row.dump();
}

std::string brief_json(i64 step, const parallel::StepResult& result, double learning_rate, i64 positions, i64 samples) {
  Json row;
  row["step"] = step;
  put(row, "loss", result.loss);
  put(row, "grad_norm", result.grad_norm);
  put(row, "lr", learning_rate);
  row["tokens"] = result.data_tokens;
  row["positions"] = positions;
  row["samples"] = samples;
  row["loss_scale"] = result.loss_scale;
  row["skipped"] = result.skipped;
  row["clipped"] = result.clipped;
  row["redo"] = result.redo;
  row["recovered"] = true;
  return row.dump();
}

std::string validation_json(i64 step, double loss, std::optional<double> accuracy) {
  Json row;
  row["step"] = step;
  put(row, "validation_loss", loss);
  if (accuracy) put(row, "validation_accuracy", *accuracy);
  return row.dump();
}

std::string to_json(const Summary& s) {
  Json row;
  row["step"] = s.step;
  put(row, "loss", s.last.loss);
  put(row, "grad_norm", s.last.grad_norm);
  if (s.validation_loss) put(row, "validation_loss", *s.validation_loss);
  if (s.validation_accuracy) put(row, "validation_accuracy", *s.validation_accuracy);
  row["run"] = s.run;
  const Trained& o = s.trained;
  row["trained"] = {
      {"model", o.model},         {"parameters", o.parameters}, {"trained_parameters", o.trained}, {"steps", o.steps}, {"tokens", o.tokens},
      {"positions", o.positions}, {"counted", o.counted},       {"tokens_in_all", o.tokens_in_all}};
  put(row["trained"], "tokens_per_s", o.per_s(o.tokens));
  put(row["trained"], "positions_per_s", o.per_s(o.positions));
  if (!o.checkpoint.empty()) row["checkpoint"] = o.checkpoint;
  if (!o.python.empty()) row["python"] = o.python;
  put_wear(row, s.wear);
  for (const ProfileRow& p : s.profile) row["profile"].push_back(profile_json(p));
  for (const AuditRow& a : s.audit)
    row["audit"].push_back({{"what", a.what}, {"predicted", a.predicted}, {"measured", a.measured}, {"unit", a.bytes ? "bytes" : "s"}});
  if (!s.audit.empty()) row["bound_by"] = to_string(s.bound_by);
  row["unplanned_bytes"] = s.unplanned_bytes;
  row["machine_was_busy"] = s.contention.busy();
  return row.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace spillway::trainer
