#include "tests/parallel/run/support_cells.h"

#include <algorithm>

#include "models/presets.h"

namespace spillway::test {

using offload::IoEngineKind;
using parallel::OptimizerOverlap;
using parallel::Order;
using parallel::Tier;

const std::array<FactorText, kFactors>& factor_texts() {
  static const std::vector<std::string_view> tiers{"device", "host", "nvme"};
  static const std::array<FactorText, kFactors> all{{{"parameters", tiers},
                                                     {"gradients", tiers},
                                                     {"optimizer", tiers},
                                                     {"activations", tiers},
                                                     {"recompute", {"no", "yes"}},
                                                     {"overlap", {"none", "backward", "forward", "adaptive"}},
                                                     {"clipping", {"never", "always", "sometimes"}},
                                                     {"master", {"fp32", "split"}},
                                                     {"order", {"micro_batch", "vertical"}},
                                                     {"stripes", {"1", "2"}},
                                                     {"engine", {"io_uring", "pread"}},
                                                     {"prefetch", {"0", "1", "3"}},
                                                     {"threads", {"1", "2"}},
                                                     {"precision", {"f32", "bf16"}},
                                                     {"micro_batches", {"1", "4"}},
                                                     {"model", {"gpt2-tiny", "llama-tiny"}}}};
  return all;
}

std::vector<int> factor_sizes() {
  std::vector<int> sizes;
  for (const FactorText& f : factor_texts()) sizes.push_back(static_cast<int>(f.values.size()));
  return sizes;
}

std::string to_string(const Row& cell) {
  std::string text;
  for (size_t f = 0; f < kFactors; ++f) {
    const FactorText& factor = factor_texts()[f];
    text += std::string(f ? " " : "") + std::string(factor.name) + "=" + std::string(factor.values[static_cast<size_t>(cell[f])]);
  }
  return text;
}

bool possible(const Row& cell) {
  if (cell[kPrecision] == 0 && cell[kMaster] == 1) return false;
  const auto may_be_nvme = [&](int f) { return cell[static_cast<size_t>(f)] == 2 || cell[static_cast<size_t>(f)] == kOpen; };
  const bool nvme = may_be_nvme(kParameters) || may_be_nvme(kGradients) || may_be_nvme(kOptimizer) || may_be_nvme(kActivations);
  return nvme || (cell[kStripes] < 1 && cell[kEngine] < 1);
}

RunOptions options_of(const Row& cell, i64 steps) {
  RunOptions o;
  o.model = models::preset(factor_texts()[kModel].values[static_cast<size_t>(cell[kModel])]);
  o.model.layers = 2;
  o.sequence_length = 16;
  o.steps = steps;
  o.max_bucket_elems = 4 * parallel::kTileElems;  // buckets are this small so that a group has several
  o.parameters = static_cast<Tier>(cell[kParameters]);
  o.gradients = static_cast<Tier>(cell[kGradients]);
  o.optimizer = static_cast<Tier>(cell[kOptimizer]);
  o.activations = static_cast<Tier>(cell[kActivations]);
  o.recompute = cell[kRecompute] == 1;
  o.adaptive = cell[kOverlap] == 3;
  o.overlap = o.adaptive ? OptimizerOverlap::none : static_cast<OptimizerOverlap>(cell[kOverlap]);
  o.deferred_sixteenths = o.adaptive ? 8 : 0;
  o.master = static_cast<optim::Master>(cell[kMaster]);
  o.order = static_cast<Order>(cell[kOrder]);
  o.stripes = cell[kStripes] + 1;
  o.engine = cell[kEngine] == 0 ? IoEngineKind::io_uring : IoEngineKind::pread;
  o.prefetch = std::array{0, 1, 3}[static_cast<size_t>(cell[kPrefetch])];
  o.threads = cell[kThreads] + 1;
  o.dtype = cell[kPrecision] == 0 ? DType::f32 : DType::bf16;
  o.micro_batches = cell[kMicroBatches] == 0 ? 1 : 4;
  return o;
}

namespace {

Row plain_cell(const Row& cell) {
  Row plain(kFactors, 0);
  for (const Factor f : {kPrecision, kMicroBatches, kModel, kClipping}) plain[f] = cell[f];
  return plain;
}

}  // namespace

RunResult References::plain(const Row& cell, double clipping) const {
  RunOptions o = options_of(plain_cell(cell), steps_);
  o.gradient_clipping = clipping;
  o.prefetch = 1;
  return train(o);
}

double References::clipping(const Row& cell) {
  if (cell[kClipping] == 0) return 100;
  if (cell[kClipping] == 1) return 1e-3;
  Row unclipped = plain_cell(cell);
  unclipped[kClipping] = 0;
  const auto [found, missing] = between_.try_emplace(unclipped);
  if (missing) {
    std::vector<double> norms = of(unclipped).norms;
    std::sort(norms.begin(), norms.end());
    found->second = norms[norms.size() / 2];
  }
  return found->second;
}

const RunResult& References::of(const Row& cell) {
  const Row key = plain_cell(cell);
  if (const auto found = results_.find(key); found != results_.end()) return found->second;
  return results_[key] = plain(key, clipping(key));
}

namespace {

std::string wrong_numbers(const RunResult& got, const RunResult& want) {
  if (got.losses != want.losses) return "losses differ";
  if (got.norms != want.norms) return "norms differ";
  if (got.weights != want.weights) return "weights differ";
  return got.m != want.m || got.v != want.v ? "moments differ" : "";
}

std::string wrong_bytes(const Row& cell, const RunResult& got) {
  for (const Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
    const auto t = static_cast<size_t>(tier);
    const std::string name(offload::to_string(tier));
    if (got.moved.read[t] != got.planned.read[t]) return name + ": read bytes are not those planned";
    if (got.moved.written[t] != got.planned.written[t]) return name + ": written bytes are not those planned";
    if (tier == Tier::device) continue;
    const auto here = [&](Factor f) { return cell[f] == static_cast<int>(tier); };
    const bool used = here(kParameters) || here(kGradients) || here(kOptimizer) || here(kActivations);
    if (used != (got.moved.read[t] > 0) || used != (got.moved.written[t] > 0)) return name + (used ? ": not used" : ": used");
  }
  if (got.peak_bytes[0] > got.plan.total[0]) return "the device's peak is above the plan's";
  return got.peak_bytes[1] != got.plan.total[1] ? "the host's peak is not the plan's" : "";
}

// Checks how many steps were clipped. Without this check "sometimes" and "always" might mean "never".
std::string wrong_clipping(const Row& cell, const RunResult& got) {
  const auto count = std::count_if(got.steps.begin(), got.steps.end(), [](const auto& s) { return s.clipped; });
  const auto steps = std::ssize(got.steps);
  const bool right = cell[kClipping] == 0 ? count == 0 : cell[kClipping] == 1 ? count == steps : 0 < count && count < steps;
  return right ? "" : "clipping bit in " + std::to_string(count) + " of " + std::to_string(steps) + " steps";
}

}  // namespace

std::string objection(const Row& cell, References& references, i64 steps) {
  RunOptions o = options_of(cell, steps);
  o.gradient_clipping = references.clipping(cell);
  const RunResult got = train(o);
  for (const std::string& wrong : {wrong_numbers(got, references.of(cell)), wrong_bytes(cell, got), wrong_clipping(cell, got)}) {
    if (!wrong.empty()) return wrong;
  }
  return "";
}

}  // namespace spillway::test
