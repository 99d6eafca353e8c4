#include "app/report/metrics_line.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "app/names/names.h"
#include "base/error.h"
#include "trainer/plan/phases.h"

namespace spillway::app {
namespace {

using Sax = nlohmann::json;

constexpr double kAbsent = std::numeric_limits<double>::quiet_NaN(), kMostStep = 9e15;

std::vector<std::string> make_names() {
  std::vector<std::string> names = {"step",
                                    "loss",
                                    "validation_loss",
                                    "validation_accuracy",
                                    "grad_norm",
                                    "lr",
                                    "tokens",
                                    "positions",
                                    "samples",
                                    "tokens_per_s",
                                    "positions_per_s",
                                    "samples_per_s",
                                    "step_ms",
                                    "predicted_ms",
                                    "loss_scale",
                                    "skipped",
                                    "clipped",
                                    "redo",
                                    "recovered",
                                    "exchanged_bytes",
                                    "sent_bytes",
                                    "slowest_rank",
                                    "slowest_rank_waits",
                                    "began_at_step",
                                    "flops_per_s",
                                    "matmul_share",
                                    "nvme_written_per_day",
                                    "days_to_endurance"};
  for (const char* what : {"tier_bytes", "peak_bytes", "read_bytes", "written_bytes"}) {
    for (const char* tier : {"device", "host", "nvme"}) names.push_back(std::string(what) + "." + tier);
  }
  for (const std::string& phase : phase_names()) names.push_back("phase_ms." + phase);
  return names;
}

const std::unordered_map<std::string, size_t>& columns() {
  static const std::unordered_map<std::string, size_t> all = [] {
    std::unordered_map<std::string, size_t> made;
    for (size_t n = 0; n < metric_names().size(); ++n) made.emplace(metric_names()[n], n);
    return made;
  }();
  return all;
}

// Reader receives the events of the JSON parser and stores each number in the column
// that its key names. Lists, and objects nested more than one level deep, are ignored.
class Reader final : public Sax::json_sax_t {
 public:
  explicit Reader(MetricsLine& line) : line_(line) {}
  bool is_object() const { return is_object_; }

  bool null() override { return true; }
  bool boolean(bool value) override { return put(value ? 1 : 0); }
  bool number_integer(Sax::number_integer_t value) override { return put(static_cast<double>(value)); }
  bool number_unsigned(Sax::number_unsigned_t value) override { return put(static_cast<double>(value)); }
  bool number_float(Sax::number_float_t value, const std::string&) override { return put(value); }
  bool string(std::string& value) override {
    if (depth_ == 1 && lists_ == 0 && key_ == "bound_by") line_.bound_by = value;
    if (depth_ == 1 && key_ == "nonfinite") line_.not_finite = true;
    return true;
  }
  bool binary(Sax::binary_t&) override { return false; }
  bool start_object(size_t) override {
    is_object_ |= depth_ == 0 && lists_ == 0;
    if (++depth_ == 2) prefix_ = key_ + ".";
    return true;
  }
  bool end_object() override {
    if (--depth_ == 1) prefix_.clear();
    return true;
  }
  bool start_array(size_t) override { return ++lists_ > 0; }
  bool end_array() override { return --lists_ >= 0; }
  bool key(std::string& value) override {
    if (depth_ <= 2) key_ = depth_ == 1 ? value : prefix_ + value;
    return true;
  }
  bool parse_error(size_t, const std::string&, const Sax::exception&) override { return false; }

 private:
  bool put(double value) {
    if (depth_ < 1 || depth_ > 2 || lists_ > 0 || !std::isfinite(value)) return true;
    if (const auto at = columns().find(key_); at != columns().end()) line_.values[at->second] = value;
    return true;
  }

  MetricsLine& line_;
  std::string key_, prefix_;
  int depth_ = 0, lists_ = 0;
  bool is_object_ = false;
};

}  // namespace

const std::vector<std::string>& metric_names() {
  static const std::vector<std::string> names = make_names();
  return names;
}

size_t metric(std::string_view name) {
  const auto at = columns().find(std::string(name));
  if (at == columns().end()) throw Error(ErrorCode::bug, "[report] expected a column of metrics.jsonl, got " + std::string(name));
  return at->second;
}

double MetricsLine::or_else(size_t column, double otherwise) const { return has(column) ? values[column] : otherwise; }

bool parse_metrics_line(std::string_view text, MetricsLine& line) {
  line.values.assign(metric_names().size(), kAbsent);
  line.bound_by.clear();
  line.not_finite = false;
  Reader reader(line);
  if (!Sax::sax_parse(text, &reader) || !reader.is_object()) return false;
  const double step = line[0];
  return step >= 1 && step < kMostStep && step == std::floor(step);
}

}  // namespace spillway::app
