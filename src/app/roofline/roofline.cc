#include "app/roofline/roofline.h"

#include <fmt/format.h>

#include <algorithm>

namespace spillway::app {
namespace {

double compute_s(const Kernel& k, const Ceilings& c) {
  if (k.reaches > 0) return k.flops / (c.tensor_flops * k.reaches);
  if (k.work == Work::attention) return k.flops / (c.tensor_flops * c.attention_share) + k.exps / c.exps_per_s;
  return k.flops / (c.tensor_flops * c.product_share * k.compute);
}

double memory_s(const Kernel& k, const Ceilings& c) { return k.bytes / (c.memory_bytes_per_s * c.memory_share * k.memory); }

Timed timed(Kernel k, const Ceilings& c) {
  if (k.work == Work::link) {
    const double seconds = k.times * k.bytes / (c.link_bytes_per_s * c.link_share);
    return {std::move(k), Bound::link, seconds};
  }
  const double compute = compute_s(k, c), memory = memory_s(k, c), seconds = k.times * (std::max(compute, memory) + c.launch_s);
  return {std::move(k), compute > memory ? Bound::compute : Bound::memory, seconds};
}

std::string ceilings_text(const Ceilings& c) {
  return fmt::format(
      "roofline of a step on an H100 SXM, calculated and not measured: {:.0f} TFLOP/s dense in bf16 (matrix products reach {:.0f} %, "
      "attention "
      "{:.0f} % while it multiplies, with {:.2f} T exponentials/s between the products); {:.2f} TB/s of memory (kernels reach {:.0f} %); "
      "{:.0f} GB/s "
      "each way to "
      "host memory (copies reach {:.0f} %); {:.0f} us from one kernel to the next\n",
      c.tensor_flops / 1e12, 100 * c.product_share, 100 * c.attention_share, c.exps_per_s / 1e12, c.memory_bytes_per_s / 1e12,
      100 * c.memory_share, c.link_bytes_per_s / 1e9, 100 * c.link_share, c.launch_s * 1e6);
}

std::string line_of(const Timed& t, const Roofline& roofline) {
  const Kernel& k = t.kernel;
  const double share = t.bound == Bound::compute ? k.compute : t.bound == Bound::memory ? k.memory : 1;
  const std::string of_step = k.work == Work::link ? "" : fmt::format("{:.1f} %", 100 * t.seconds / roofline.gpu_s);
  // A name that is longer than its column, and a note, have lines of their own, so that the table fits 80 columns.
  constexpr size_t kNameColumns = 29;
  const bool fits = k.name.size() < kNameColumns;
  std::string text = fits ? "" : fmt::format("  {}\n", k.name);
  text += fmt::format("  {:<{}}{:>5.0f}{:>8.1f}{:>8.1f} {:<8}{:>5.2f}{:>7.2f}{:>7}", fits ? k.name : "", kNameColumns, k.times,
                      k.flops / 1e9, k.bytes / 1e6, to_string(t.bound), share, t.seconds * 1e3, of_step);
  return text + (k.note.empty() ? "\n" : "\n      " + k.note + "\n");
}

}  // namespace

std::string_view to_string(Work work) {
  constexpr std::string_view kNames[] = {"products", "attention", "head", "elementwise and norms", "embedding", "optimizer", "copies"};
  return kNames[static_cast<size_t>(work)];
}

std::string_view to_string(Bound bound) {
  constexpr std::string_view kNames[] = {"compute", "memory", "PCIe"};
  return kNames[static_cast<size_t>(bound)];
}

Roofline make_roofline(const parallel::Plan& plan, const models::ModelConfig& model, const Ceilings& ceilings) {
  Roofline r{.ceilings = ceilings, .kernels = {}};
  const parallel::TierBytes moved = plan.moved_per_step();
  r.between_ranks_bytes = static_cast<double>(moved.exchanged + moved.sent);
  for (Kernel& k : kernels_of_step(plan, model, ceilings)) {
    r.flops += k.times * k.flops;
    r.model_flops += k.times * k.model_flops;
    r.kernels.push_back(timed(std::move(k), ceilings));
    const Timed& t = r.kernels.back();
    r.work_s[static_cast<size_t>(t.kernel.work)] += t.seconds;
    if (t.bound != Bound::link) r.gpu_s += t.seconds;
    if (t.bound == Bound::link) (t.kernel.to_gpu ? r.to_gpu_s : r.from_gpu_s) += t.seconds;
  }
  return r;
}

std::string to_text(const Roofline& r) {
  std::string text = ceilings_text(r.ceilings);
  text += fmt::format("  {:<29}{:>5}{:>8}{:>8} {:<8}{:>5}{:>7}\n", "", "times", "GFLOP", "MB", "bound", "share", "ms");
  for (size_t w = 0; w < kWorks; ++w) {
    const auto work = static_cast<Work>(w);
    if (r.work_s[w] == 0) continue;
    text += work == Work::link ? fmt::format("copies in parallel with the kernels: {:.2f} ms to the GPU, {:.2f} ms from the GPU\n",
                                             r.to_gpu_s * 1e3, r.from_gpu_s * 1e3)
                               : fmt::format("{}: {:.2f} ms\n", to_string(work), r.work_s[w] * 1e3);
    for (const Timed& t : r.kernels) {
      if (t.kernel.work == work) text += line_of(t, r);
    }
  }
  text += fmt::format(
      "GPU in all: {:.2f} ms for {:.2f} TFLOP of products, {:.1f} % of its peak; the model itself needs {:.2f} TFLOP, {:.1f} %\n",
      r.gpu_s * 1e3, r.flops / 1e12, 100 * r.share_of_peak(r.flops), r.model_flops / 1e12, 100 * r.share_of_peak(r.model_flops));
  if (r.between_ranks_bytes > 0)
    text += fmt::format("exchanged between the ranks: {:.1f} MB, whose time is not counted here\n", r.between_ranks_bytes / 1e6);
  return text;
}

}  // namespace spillway::app
