#include "trainer/record/audit.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>
#include <vector>

#include "base/units.h"

namespace spillway::trainer {
namespace {

using offload::Tier;
using parallel::Resource;

// The first two steps of a process are not typical. The first has no deferred optimizer
// work to do, and the second may be the first that touches the optimizer state.
constexpr i64 kWarmUpSteps = 2;
constexpr size_t kHost = static_cast<size_t>(Tier::host), kNvme = static_cast<size_t>(Tier::nvme);

double at(const Phases& phases, const char* name) {
  const auto found = phases.find(name);
  return found == phases.end() ? 0 : found->second;
}

void add(Phases& sum, const Phases& more) {
  for (const auto& [name, ms] : more) sum[name] += ms;
}

std::string shown(const AuditRow& row, double value) { return row.bytes ? format_bytes(static_cast<i64>(value)) : format_duration(value); }

std::string gigabytes_per_s(double bytes_per_s) { return fmt::format("{:.2f} GB/s", bytes_per_s / 1e9); }

std::string disk_help(const Levers& l) {
  std::vector<std::string> help;
  if (l.spilled_state_bytes > 0)
    help.push_back(
        fmt::format("a larger --host-memory, so that more of the {} of optimizer state stays in RAM", format_bytes(l.spilled_state_bytes)));
  if (l.spilled_state_bytes == 0 && l.spilled_bytes > 0) help.push_back("a larger --host-memory or --device-memory");
  help.push_back(l.stripes > 1 ? "one more --nvme path on another drive" : "a second --nvme path on another drive");
  if (l.split_master_left) {
    help.push_back(
        fmt::format("--master-weights split (same results, 2 bytes per parameter less {})", l.weights_on_nvme ? "to write" : "each way"));
  }
  if (l.low_moments_left)
    help.push_back(fmt::format("--moments bf16 (an approximation, {} bytes per parameter less each way)", 2 * l.state_arrays));
  if (static_cast<double>(l.tokens) < l.break_even_tokens)
    help.push_back(
        fmt::format("more tokens a step, by --micro-batch-size or --gradient-accumulation-steps: disk traffic hides behind computing "
                    "from {:.0f} tokens a step upward, now {}",
                    l.break_even_tokens, l.tokens));
  return fmt::format("{}", fmt::join(help, "; "));
}

std::string help_for(Resource resource, const Levers& levers) {
  switch (resource) {
    case Resource::disk:
      return disk_help(levers);
    case Resource::compute:
      if (levers.on_gpu)
        return levers.bf16 ? "a faster GPU; a faster disk would not help"
                           : "--precision bf16, or a faster GPU; a faster disk would not help";
      return fmt::format("more cores{}; a faster disk would not help",
                         levers.bf16 ? "" : ", or --precision bf16 on a CPU with bf16 instructions (AVX512_BF16, AMX)");
    case Resource::memory:
      return "more tokens a step, by --micro-batch-size or --gradient-accumulation-steps, so that the optimizer runs less often";
    case Resource::data:
      return "token files (spillway tokenize) instead of text";
    case Resource::ranks:
      return "more --gradient-accumulation-steps, so that ranks exchange less often; a lower --zero-stage if there is memory; if one rank "
             "is slower than the others (slowest_rank in metrics.jsonl), remove the cause of that";
  }
  return "";
}

}  // namespace

void Audit::step(const StepSample& s) {
  if (steps_ == 1 && warmed_up_ < kWarmUpSteps) {
    const i64 before = warmed_up_;
    *this = {};
    warmed_up_ = before + 1;
  }
  ++steps_;
  seconds_ += s.seconds;
  account_ += s.account;
  add(phases_, s.phases);
  disk_ += s.disk;
  moved_ += s.moved;
  planned_ += s.planned;
  predicted_s_ += s.predicted->seconds;
  add(predicted_, s.predicted->phase_ms);
}

std::vector<AuditRow> Audit::rows(const MemoryAudit& m) const {
  std::vector<AuditRow> rows = {{"step", mean(predicted_s_), mean(seconds_)}};
  for (const char* phase : {"forward", "backward", "backward_weight", "reduce", "exchange", "optimizer", "fetch", "evict"}) {
    const AuditRow row{phase, mean(at(predicted_, phase)) / 1e3, mean(at(phases_, phase)) / 1e3};
    if (row.predicted > 0 || row.measured > 0) rows.push_back(row);
  }
  for (const auto& [name, phase] : {std::pair("computing waits to load", "wait_load"), std::pair("computing waits to store", "wait_store"),
                                    std::pair("computing waits for updates", "wait_optimizer")})
    rows.push_back({name, mean(at(predicted_, phase)) / 1e3, mean(at(phases_, phase)) / 1e3});
  if (disk_.either_s > 0) rows.push_back({"drive at work", mean(at(predicted_, "disk")) / 1e3, mean(disk_.either_s)});
  const auto moved = [&](const char* what, double planned, double measured) {
    if (planned > 0 || measured > 0) rows.push_back({what, mean(planned), mean(measured), true});
  };
  const auto of = [](const auto& bytes, size_t tier) { return static_cast<double>(bytes[tier]); };
  moved("read from host", of(planned_.read, kHost), of(moved_.read, kHost));
  moved("written to host", of(planned_.written, kHost), of(moved_.written, kHost));
  moved("read from nvme", of(planned_.read, kNvme), of(moved_.read, kNvme));
  moved("written to nvme", of(planned_.written, kNvme), of(moved_.written, kNvme));
  for (size_t t = 0; t < offload::kTiers; ++t) {
    if (m.planned[t] > 0) rows.push_back({fmt::format("peak {}", to_string(static_cast<Tier>(t))), of(m.planned, t), of(m.peak, t), true});
  }
  if (m.process > 0) rows.push_back({"peak process", static_cast<double>(m.predicted_process), static_cast<double>(m.process), true});
  return rows;
}

std::string Audit::brief() const {
  std::string shares;
  for (size_t r = 0; r < parallel::kResources; ++r) {
    const double percent = account_.seconds > 0 ? 100 * account_.chain_s[r] / account_.seconds : 0;
    if (percent >= 0.5) shares += fmt::format("{} {} {:.0f} %", shares.empty() ? ":" : ",", to_string(static_cast<Resource>(r)), percent);
  }
  return fmt::format("{} a step ({} planned){}", format_duration(mean(seconds_)), format_duration(mean(predicted_s_)), shares);
}

std::string Audit::verdict(const Levers& levers) const {
  const Resource bound = bound_by();
  const double share = account_.seconds > 0 ? account_.chain_s[static_cast<size_t>(bound)] / account_.seconds : 0;
  std::string text = fmt::format("bound by {} ({:.0f} % of the step", to_string(bound), 100 * share);
  const auto bytes = static_cast<double>(disk_.read_bytes + disk_.written_bytes);
  if (bytes > 0 && disk_.either_s > 0) {
    text +=
        fmt::format("; disk {} while busy, {:.0f} % of the time", gigabytes_per_s(bytes / disk_.either_s), 100 * disk_.either_s / seconds_);
    if (levers.disk_bytes_per_s > 0) text += fmt::format("; {} was expected", gigabytes_per_s(levers.disk_bytes_per_s));
  }
  return text + "); what would help: " + help_for(bound, levers);
}

std::string to_text(const std::vector<AuditRow>& rows, i64 steps, const Contention& contention) {
  std::string text = fmt::format("  {:<32}{:>12}{:>12}\n", steps == 1 ? "audit of 1 step" : fmt::format("audit, means of {} steps", steps),
                                 "predicted", "measured");
  for (const AuditRow& row : rows) {
    text += fmt::format("    {:<30}{:>12}{:>12}", row.what, shown(row, row.predicted), shown(row, row.measured));
    const double off = row.predicted > 0 ? row.measured / row.predicted - 1 : 0;
    if (std::abs(off) >= 0.005) text += fmt::format("{:>+7.0f} %", 100 * off);
    text += '\n';
  }
  if (contention.busy()) text += "    the machine was busy, so the measured times are too long: " + contention.text() + "\n";
  return text;
}

Levers levers_of(const parallel::Plan& plan, const nn::Sequential& model, const Rates& rates, i64 stripes) {
  Levers levers;
  const optim::StateFormat& format = plan.scheduling.format;
  levers.on_gpu = plan.on_gpu();
  levers.bf16 = multiplies_halves(format.weight, levers.on_gpu);
  levers.split_master_left = format.weight == DType::bf16 && format.master == optim::Master::fp32;
  levers.state_arrays = is_of_parameters(format.rule) ? 0 : state_arrays(format.rule);  // number of arrays that --moments bf16 would round
  levers.low_moments_left = format.moments == optim::Moments::fp32 && levers.state_arrays > 0;
  levers.stripes = stripes;
  for (const parallel::Group& g : plan.layout.groups) {
    if (plan.placement.parameters[g.id] == Tier::nvme) {
      levers.spilled_bytes += plan.held_weights(g).count() * format.weight_tile_bytes();
      levers.weights_on_nvme |= !g.frozen;
    }
    if (g.frozen) continue;
    if (plan.placement.optimizer[g.id] == Tier::nvme) levers.spilled_state_bytes += plan.stepped(g).count() * plan.state_tile_bytes(g);
    if (plan.placement.gradients[g.id] == Tier::nvme && plan.gradient_rests(g, 0))
      levers.spilled_bytes += plan.held_gradients(g).count() * parallel::kTileElems * size_of(plan.resting_gradient({g.id, 0}));
  }
  const parallel::TierBytes moved = plan.moved_per_step();
  const auto read = static_cast<double>(moved.read[kNvme]), written = static_cast<double>(moved.written[kNvme]);
  if (read + written > 0) levers.disk_bytes_per_s = (read + written) / rates.disk_s(read, written);
  levers.break_even_tokens = break_even_tokens(plan, model, rates);
  levers.tokens = plan.micro_batch_size * plan.sequence_length * plan.scheduling.micro_batches;
  return levers;
}

}  // namespace spillway::trainer
