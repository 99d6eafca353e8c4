#include "trainer/plan/phases.h"

#include <algorithm>

namespace spillway::trainer {

const char* phase_of(parallel::Op op) {
  switch (op) {
    case parallel::Op::Forward:
      return "forward";
    case parallel::Op::Backward:
    case parallel::Op::BackwardInput:
      return "backward";
    case parallel::Op::BackwardWeight:
      return "backward_weight";
    case parallel::Op::Accumulate:
    case parallel::Op::AddTied:
    case parallel::Op::Reduce:
      return "reduce";
    case parallel::Op::Fetch:
      return "fetch";
    case parallel::Op::Evict:
      return "evict";
    case parallel::Op::Gather:
    case parallel::Op::Exchange:
    case parallel::Op::SendActivation:
    case parallel::Op::SendGradient:
    case parallel::Op::SendTied:
    case parallel::Op::ReceiveActivation:
    case parallel::Op::ReceiveGradient:
    case parallel::Op::ReceiveTied:
      return "exchange";
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

std::vector<std::string> phase_names() {
  std::vector<std::string> names = {"head",     "tail",  "forward", "backward", "backward_weight", "reduce",
                                    "exchange", "fetch", "evict",   "data",     "optimizer"};
  Phases rest;
  add_lanes(rest, {});
  add_disk(rest, {});
  for (const auto& [name, ms] : rest) names.push_back(name);
  return names;
}

void add_phases(Phases& phases, const parallel::List& list, std::span<const parallel::Timing> timings, const char* whole) {
  double end = 0;
  for (size_t i = 0; i < timings.size(); ++i) {
    end = std::max(end, timings[i].end_us);
    if (const char* phase = phase_of(list[i].op)) phases[phase] += (timings[i].end_us - timings[i].start_us) / 1e3;
  }
  phases[whole] += end / 1e3;
}

void add_lanes(Phases& phases, const parallel::Account& a) {
  for (size_t l = 0; l < parallel::kLanes; ++l) {
    const std::string lane(to_string(static_cast<parallel::Lane>(l)));
    phases["lane_" + lane] += a.busy_s[l] * 1e3;
    if (l > 0) phases["wait_" + lane] += a.awaited_s[l] * 1e3;
  }
  for (size_t r = 0; r < parallel::kResources; ++r)
    phases["bound_" + std::string(to_string(static_cast<parallel::Resource>(r)))] += a.chain_s[r] * 1e3;
}

void add_disk(Phases& phases, const DiskUse& use) {
  phases["disk"] += use.either_s * 1e3;
  phases["disk_read"] += use.read_s * 1e3;
  phases["disk_write"] += use.write_s * 1e3;
}

}  // namespace spillway::trainer
