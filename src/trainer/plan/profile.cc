#include "trainer/plan/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "trainer/plan/cost_model.h"
#include "trainer/plan/shares.h"

namespace spillway::trainer {
namespace {

using parallel::Instruction;
using parallel::Op;

constexpr size_t kHost = static_cast<size_t>(offload::Tier::host), kNvme = static_cast<size_t>(offload::Tier::nvme);

// Returns the name under which the profile lists an instruction. A Land instruction waits for the end of the update's writes, so its time
// counts as part of the Step, the optimizer's update.
std::string kind_of(const Instruction& i) {
  if (i.op == Op::Step || i.op == Op::Land) return "Step";
  std::string kind(parallel::to_string(i.op));
  if (i.op == Op::Fetch || i.op == Op::Evict) kind += " " + std::string(parallel::to_string(i.what));
  return kind;
}

// Returns the bytes of memory that an update touches, in any tier. The update reads gradient, weight and state, and writes weight and
// state.
i64 update_bytes(const Instruction& i, const parallel::Plan& plan) {
  const optim::StateFormat& format = plan.scheduling.format;
  const i64 per_tile = format.gradient_tile_bytes() + 2 * format.weight_tile_bytes() + 2 * format.state_tile_bytes();
  return i.tiles.count() * per_tile;
}

void count(Profile::Sum& sum, const Instruction& i, const parallel::Plan& plan) {
  sum.disk_read_bytes += i.read_bytes[kNvme];
  sum.disk_written_bytes += i.written_bytes[kNvme];
  if (i.op == Op::Step) sum.memory_bytes += update_bytes(i, plan);
  if (i.op == Op::Fetch || i.op == Op::Evict) {
    sum.copies = true;
    sum.memory_bytes += 2 * (i.read_bytes[kHost] + i.written_bytes[kHost]);
  }
}

// Ceilings holds the rates that copies, memory sweeps and matrix products can reach on the device where a rank computes.
struct Ceilings {
  double copy, memory, flops;
  const char* copy_name;
};

Ceilings ceilings_of(const Calibration& c, bool on_gpu, bool halves) {
  if (!on_gpu) return {c.copy_bytes_per_s, c.memory_bytes_per_s, halves ? c.matmul_flops_bf16 : c.matmul_flops_f32, "copy"};
  // A copy over the link between host and GPU counts its bytes twice: where they are read and where they are written.
  return {c.to_gpu_bytes_per_s + c.from_gpu_bytes_per_s, c.gpu_copy_bytes_per_s, halves ? c.gpu_matmul_flops_bf16 : c.gpu_matmul_flops_f32,
          "link"};
}

void rate(ProfileRow& row, const Profile::Sum& sum, const Ceilings& ceilings, const std::vector<DiskRates>& disks,
          const std::vector<u32>& shares) {
  const auto all_stripes = [&](double DiskRates::*of) { return disks.empty() ? DiskRates().*of : striped_rate(shares, disks, of); };
  const i64 disk_bytes = sum.disk_read_bytes + sum.disk_written_bytes, bytes = disk_bytes > 0 ? disk_bytes : sum.memory_bytes;
  if (!(sum.ms > 0)) return;
  if (sum.flops > 0) {
    row.flops_per_s = sum.flops / (sum.ms / 1e3);
    row.ceiling = ceilings.flops, row.ceiling_name = "matmul";
    return;
  }
  if (bytes == 0) return;
  row.bytes_per_s = static_cast<double>(bytes) / (sum.ms / 1e3);
  if (disk_bytes == 0) {
    row.ceiling = sum.copies ? ceilings.copy : ceilings.memory;
    row.ceiling_name = sum.copies ? ceilings.copy_name : "memory";
  } else if (sum.disk_written_bytes == 0) {
    row.ceiling = all_stripes(&DiskRates::read_bytes_per_s);
    row.ceiling_name = "disk read";
  } else if (sum.disk_read_bytes == 0) {
    row.ceiling = all_stripes(&DiskRates::write_bytes_per_s);
    row.ceiling_name = "disk write";
  } else {
    row.ceiling = all_stripes(&DiskRates::mixed_bytes_per_s);
    row.ceiling_name = "disk mixed";
  }
}

}  // namespace

void Profile::add(const parallel::List& list, const std::vector<parallel::Timing>& timings, const parallel::Plan& plan,
                  const Flops& flops) {
  on_gpu_ = plan.on_gpu(), halves_ = multiplies_halves(plan.scheduling.format.weight, on_gpu_);
  for (size_t n = 0; n < timings.size(); ++n) {
    const Instruction& i = list[n];
    Sum& sum = sums_[{kind_of(i), std::string(parallel::to_string(i.lane))}];
    sum.ms += (timings[n].end_us - timings[n].start_us) / 1e3;
    count(sum, i, plan);
    if (parallel::computes_block(i.op)) sum.flops += work_flops(i, flops(i.block));
  }
}

void Profile::step(const parallel::Rank& rank, const nn::Sequential& model, double seconds) {
  const auto tokens = static_cast<double>(rank.plan().micro_batch_size * rank.plan().sequence_length);
  const Flops flops = [&](u16 block) { return block_flops(rank.plan().layout, model, block, tokens); };
  add(*rank.last_head(), rank.head_timings(), rank.plan(), flops);
  if (rank.last_tail()) add(*rank.last_tail(), rank.tail_timings(), rank.plan(), flops);
  seconds_ += seconds;
  ++steps_;
}

std::vector<ProfileRow> Profile::rows(const Calibration& calibration, const std::vector<DiskRates>& disks,
                                      const std::vector<u32>& shares) const {
  const auto steps = static_cast<double>(std::max<i64>(1, steps_));
  const Ceilings ceilings = ceilings_of(calibration, on_gpu_, halves_);
  const auto row_of = [&](const std::pair<std::string, std::string>& name, const std::string& op, const Sum& sum) {
    ProfileRow row{.kind = name.first, .lane = name.second, .op = op, .ms = sum.ms / steps};
    if (seconds_ > 0) row.share = sum.ms / 1e3 / seconds_;
    rate(row, sum, ceilings, disks, shares);
    return row;
  };
  std::vector<ProfileRow> kinds;
  for (const auto& [name, sum] : sums_) kinds.push_back(row_of(name, "", sum));
  std::ranges::stable_sort(kinds, std::greater(), &ProfileRow::ms);
  std::vector<ProfileRow> all;
  for (ProfileRow& kind : kinds) {
    std::vector<ProfileRow> ops;
    for (const auto& [op, times] : ops_) {
      if (parallel::to_string(op) != kind.kind) continue;
      for (const auto& [name, time] : times)
        ops.push_back(row_of({kind.kind, kind.lane}, name, {.ms = 1e3 * time.seconds, .flops = time.flops}));
    }
    std::ranges::stable_sort(ops, std::greater(), &ProfileRow::ms);
    all.push_back(std::move(kind));
    std::ranges::move(ops, std::back_inserter(all));
  }
  return all;
}

std::string to_text(const std::vector<ProfileRow>& rows, bool measured) {
  constexpr double kLeastShare = 0.002;  // ops below this share of the step are not shown
  std::string text = fmt::format("{:<23}{:<10}{:>8}{:>8}{:>12}  {}\n", "profile", "lane", "ms/step", "share", "while busy",
                                 measured ? "of measured" : "of assumed");
  for (const ProfileRow& row : rows) {
    if (!row.op.empty() && row.share < kLeastShare) continue;
    const std::string name = row.op.empty() ? row.kind : "  " + row.op;
    text += fmt::format("{:<23}{:<10}{:>8.2f}{:>6.1f} %", name, row.op.empty() ? row.lane : "", row.ms, 100 * row.share);
    if (row.bytes_per_s) text += fmt::format("{:>7.2f} GB/s", *row.bytes_per_s / 1e9);
    if (row.flops_per_s) text += fmt::format("{:>7.2f} TF/s", *row.flops_per_s / 1e12);
    const std::optional<double> rate = row.flops_per_s ? row.flops_per_s : row.bytes_per_s;
    if (rate && row.ceiling) text += fmt::format("  {:.0f} % of {}", 100 * *rate / *row.ceiling, row.ceiling_name);
    text += '\n';
  }
  if (!measured) text += "the assumed rates are constants: spillway bench measures this node\n";
  return text;
}

}  // namespace spillway::trainer
