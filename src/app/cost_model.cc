#include "app/cost_model.h"

#include <algorithm>

namespace spillway::app {
namespace {

using parallel::Instruction;
using parallel::Op;
using parallel::Tier;

// Of the rate of large matrix products, what a whole block reaches: the rest goes to norms, softmax, activations and short rows.
constexpr double kBlockEfficiency = 0.6;

double at(const std::array<i64, offload::kTiers>& bytes, Tier tier) { return static_cast<double>(bytes[static_cast<size_t>(tier)]); }

class Costing {
 public:
  Costing(const parallel::Plan& plan, const nn::Sequential& model, const Rates& rates) : plan_(plan), rates_(rates) {
    const auto tokens = static_cast<double>(plan.micro_batch_size * plan.sequence_length);
    for (u16 b = 0; b < plan.layout.blocks.size(); ++b) forward_s_.push_back(forward_flops(plan.layout, model, b, tokens) / rates.flops);
  }

  parallel::Work operator()(const Instruction& i) const {
    const double disk_s =
        at(i.read_bytes, Tier::nvme) / rates_.disk_read_bytes_per_s + at(i.written_bytes, Tier::nvme) / rates_.disk_write_bytes_per_s;
    const double copy_s = (at(i.read_bytes, Tier::host) + at(i.written_bytes, Tier::host)) / rates_.memory_bytes_per_s;
    switch (i.op) {
      case Op::Forward:
        return {forward_s_[i.block] + copy_s, 0};
      case Op::Backward:
        return {forward_s_[i.block] * (i.recompute ? 3 : 2) + copy_s, 0};
      case Op::Step:
        return {static_cast<double>(plan_.layout.buckets[i.bucket].elems()) * rates_.adam_s_per_element, disk_s};
      case Op::Reduce:
        return {static_cast<double>(plan_.layout.groups[i.group].elems * 4) / rates_.memory_bytes_per_s, 0};
      default:
        return {copy_s, disk_s};
    }
  }

 private:
  const parallel::Plan& plan_;
  const Rates rates_;
  std::vector<double> forward_s_;
};

}  // namespace

Rates make_rates(const Calibration& c, DType weight, const std::vector<std::string>& paths) {
  Rates rates;
  rates.flops = kBlockEfficiency * (weight == DType::bf16 ? c.matmul_flops_bf16 : c.matmul_flops_f32);
  rates.memory_bytes_per_s = c.memory_bytes_per_s;
  rates.adam_s_per_element = c.adam_ns_per_parameter * 1e-9;
  if (paths.empty()) return rates;
  const auto stripes = static_cast<double>(paths.size());
  rates.disk_read_bytes_per_s = rates.disk_write_bytes_per_s = 1e300;
  for (const std::string& path : paths) {
    const DiskRates disk = c.disk(path);
    rates.disk_read_bytes_per_s = std::min(rates.disk_read_bytes_per_s, stripes * disk.read_bytes_per_s);
    rates.disk_write_bytes_per_s = std::min(rates.disk_write_bytes_per_s, stripes * disk.write_bytes_per_s);
  }
  return rates;
}

double forward_flops(const parallel::Layout& layout, const nn::Sequential& model, u16 block, double tokens) {
  double elems = 0;
  for (const parallel::GroupUse& use : layout.blocks[block]) {
    if (block == 0) continue;  // looks its rows up
    for (const parallel::Segment& s : layout.groups[use.group].segments) {
      if (model.parameters[s.parameter]->shape.rank() >= 2) elems += static_cast<double>(s.elems);
    }
  }
  return 2 * elems * tokens;
}

std::string StepCost::bound_by() const {
  const std::pair<double, const char*> all[] = {{compute_s, "compute"}, {disk_s, "disk"}, {optimizer_s, "optimizer"}};
  return std::max_element(std::begin(all), std::end(all))->second;
}

StepCost predict(const parallel::Plan& plan, const nn::Sequential& model, const Rates& rates) {
  const Costing costing(plan, model, rates);
  StepCost cost;
  for (const parallel::List* list : {&plan.train.head, &plan.train.commit}) {
    const parallel::Simulation s = parallel::simulate(*list, costing);
    cost.seconds += s.seconds;
    cost.disk_s += s.disk_s;
    cost.compute_s += s.busy_s[static_cast<size_t>(parallel::Lane::compute)];
  }
  cost.optimizer_s = static_cast<double>(plan.layout.trained_elems()) * rates.adam_s_per_element;
  return cost;
}

double break_even_tokens(const parallel::Plan& plan, const Rates& rates) {
  const parallel::TierBytes moved = plan.moved_per_step();
  const double disk_s =
      at(moved.read, Tier::nvme) / rates.disk_read_bytes_per_s + at(moved.written, Tier::nvme) / rates.disk_write_bytes_per_s;
  const double host_s = (at(moved.read, Tier::host) + at(moved.written, Tier::host)) / rates.memory_bytes_per_s;
  return (disk_s + host_s) / static_cast<double>(plan.layout.trained_elems()) * rates.flops / 6;
}

}  // namespace spillway::app
