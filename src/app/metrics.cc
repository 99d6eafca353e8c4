#include "app/metrics.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace spillway::app {
namespace {

using Json = nlohmann::ordered_json;

void put(Json& row, const char* key, double value) {
  row[key] = value;  // a non-finite number becomes null
  if (!std::isfinite(value)) row["nonfinite"] = std::isnan(value) ? "nan" : "inf";
}

Json by_tier(const std::array<i64, offload::kTiers>& bytes) { return {{"device", bytes[0]}, {"host", bytes[1]}, {"nvme", bytes[2]}}; }

const char* phase_of(parallel::Op op) {
  switch (op) {
    case parallel::Op::Forward:
      return "forward";
    case parallel::Op::Backward:
      return "backward";
    case parallel::Op::AddTied:
    case parallel::Op::Reduce:
      return "reduce";
    case parallel::Op::Fetch:
      return "fetch";
    case parallel::Op::Evict:
      return "evict";
    case parallel::Op::Load:
      return "data";
    case parallel::Op::Step:
    case parallel::Op::Land:
    case parallel::Op::Commit:
      return "optimizer";
    default:
      return nullptr;
  }
}

void add(std::map<std::string, double>& phases, const parallel::List& list, const std::vector<parallel::Timing>& timings,
         const char* whole) {
  double end = 0;
  for (size_t i = 0; i < timings.size(); ++i) {
    end = std::max(end, timings[i].end_us);
    if (const char* phase = phase_of(list[i].op)) phases[phase] += (timings[i].end_us - timings[i].start_us) / 1e3;
  }
  phases[whole] = end / 1e3;
}

}  // namespace

std::string to_json(const MetricsRow& m) {
  Json row;
  row["step"] = m.step;
  put(row, "loss", m.result.loss);
  put(row, "grad_norm", m.result.grad_norm);
  put(row, "lr", m.learning_rate);
  row["tokens"] = m.tokens;
  row["samples"] = m.samples;
  put(row, "tokens_per_s", static_cast<double>(m.tokens) / m.seconds);
  put(row, "samples_per_s", static_cast<double>(m.samples) / m.seconds);
  put(row, "step_ms", m.seconds * 1e3);
  row["phase_ms"] = m.phases;
  row["loss_scale"] = 1.0;
  row["skipped"] = m.result.skipped;
  row["clipped"] = m.result.clipped;
  row["redo"] = m.result.redo;
  row["tier_bytes"] = by_tier(m.tier_bytes);
  row["peak_bytes"] = by_tier(m.peak_bytes);
  row["read_bytes"] = by_tier(m.moved.read);
  row["written_bytes"] = by_tier(m.moved.written);
  if (m.validation_loss) put(row, "validation_loss", *m.validation_loss);
  return row.dump();
}

std::string brief_json(i64 step, const parallel::StepResult& result, double learning_rate, i64 tokens, i64 samples) {
  Json row;
  row["step"] = step;
  put(row, "loss", result.loss);
  put(row, "grad_norm", result.grad_norm);
  put(row, "lr", learning_rate);
  row["tokens"] = tokens;
  row["samples"] = samples;
  row["skipped"] = result.skipped;
  row["clipped"] = result.clipped;
  row["redo"] = result.redo;
  row["recovered"] = true;
  return row.dump();
}

std::map<std::string, double> phase_milliseconds(const parallel::Rank& rank) {
  std::map<std::string, double> phases;
  add(phases, rank.last_program().head, rank.head_timings(), "head");
  add(phases, *rank.last_tail(), rank.tail_timings(), "tail");
  return phases;
}

std::string summary_json(i64 step, const parallel::StepResult& last, std::optional<double> validation_loss, const std::string& run) {
  Json row;
  row["step"] = step;
  put(row, "loss", last.loss);
  put(row, "grad_norm", last.grad_norm);
  if (validation_loss) put(row, "validation_loss", *validation_loss);
  row["run"] = run;
  return row.dump();
}

}  // namespace spillway::app
