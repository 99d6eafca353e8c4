#include "app/roofline/expert_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/experts/expert_products.h"

// Legend: N = positions of a micro-batch, K = experts per position, M = N K rows, E = experts, C = width, F = width of an expert.
namespace spillway::app {
namespace {

using Tile = kernels::ExpertTile;

constexpr double kHalf = 2, kWide = 4;  // bytes of a bf16 or fp16 number, and of an fp32 number

double whole_tiles(double n) { return std::ceil(n / Tile::kColumns) * Tile::kColumns; }

class Mixture {
 public:
  Mixture(const models::ModelConfig& model, double positions, const ExpertRuns& runs, const Ceilings& ceilings)
      : e_(*model.experts),
        runs_(runs),
        ceilings_(ceilings),
        N_(positions),
        M_(positions * static_cast<double>(e_.chosen)),
        E_(static_cast<double>(e_.count)),
        C_(static_cast<double>(model.width)),
        F_(static_cast<double>(e_.width)),
        used_(std::min(E_, M_)) {}

  std::vector<Kernel> all() {
    pass("choice of experts", runs_.forward, N_ * E_ * (kHalf + kWide) + M_ * 2 * kWide);
    pass("choice of experts, dx", runs_.input, N_ * E_ * (kHalf + kWide) + M_ * 3 * kWide);
    pass("choices sorted by expert", runs_.forward, M_ * 4 * kWide);
    if (e_.evened_out) pass("load of the experts", runs_.forward, kWide * (N_ * E_ + M_));
    pass("rows copied to experts", runs_.forward, kHalf * 2 * M_ * C_);
    pass("rows copied to experts, dx", runs_.input, kHalf * (M_ + N_) * C_);
    product("experts' gate", C_, F_);
    product("experts' up", C_, F_);
    product("experts' down", F_, C_);
    pass("experts' SwiGLU", runs_.forward, 3 * kHalf * M_ * F_);
    pass("experts' SwiGLU, dx", runs_.input, 5 * kHalf * M_ * F_);
    pass("gradients of gate's and up's rows added", runs_.input, 3 * kHalf * M_ * C_);
    pass("experts' rows summed", runs_.forward, kHalf * (M_ + N_) * C_);
    pass("experts' rows summed, dx", runs_.input, kHalf * 2 * M_ * C_);
    pass("experts' rows summed, dweights", runs_.input, kHalf * 2 * M_ * C_);
    pass("residual added to the experts", runs_.forward, 3 * kHalf * N_ * C_);
    return std::move(kernels_);
  }

 private:
  void pass(const std::string& name, double times, double bytes) {
    kernels_.push_back({.work = Work::elementwise, .name = name, .times = times, .bytes = bytes});
  }

  void product(const std::string& name, double in, double out) {
    // runs of the forward for a recomputation do not count in model_flops
    const double needed = runs_.forward > 0 ? std::min(1.0, runs_.input / runs_.forward) : 1;
    of_rows(name, runs_.forward, out, in, needed);
    of_rows(name + ", dx", runs_.input, in, out, 1);
    over_rows(name + ", dw", in, out);
  }

  // Adds the product of the rows and the used weights, with n columns and sums of k terms.
  void of_rows(const std::string& name, double times, double n, double k, double needed) {
    const auto tile = static_cast<double>(Tile::rows_of(static_cast<i64>(M_), e_.count));
    kernels_.push_back(
        {.work = Work::products,
         .name = name,
         .times = times,
         .flops = 2 * (M_ + used_ * tile / 2) * whole_tiles(n) * k,
         .reaches = ceilings_.expert_share,
         .bytes = kHalf * (M_ * (n + k) + used_ * n * k),
         .model_flops = 2 * M_ * n * k * needed,
         .note = fmt::format("{:.0f} rows of {} experts x {:.0f} x {:.0f}, tiles of {:.0f} rows", M_, e_.count, n, k, tile)});
  }

  // Adds the sums over the rows of each expert, which take kDepth rows at a time.
  void over_rows(const std::string& name, double in, double out) {
    kernels_.push_back({.work = Work::products,
                        .name = name,
                        .times = runs_.weights,
                        .flops = 2 * (M_ + used_ * Tile::kDepth / 2) * whole_tiles(in) * whole_tiles(out),
                        .reaches = ceilings_.expert_share,
                        .bytes = kHalf * M_ * (in + out) + kWide * E_ * in * out,
                        .model_flops = 2 * M_ * in * out,
                        .note = fmt::format("{} x {:.0f} x {:.0f}, over {:.0f} rows", e_.count, out, in, M_)});
  }

  const models::ExpertsConfig& e_;
  const ExpertRuns runs_;
  const Ceilings& ceilings_;
  const double N_, M_, E_, C_, F_, used_;  // used_: the most experts that can have rows
  std::vector<Kernel> kernels_;
};

}  // namespace

std::vector<Kernel> expert_kernels(const models::ModelConfig& model, double positions, const ExpertRuns& runs, const Ceilings& ceilings) {
  return Mixture(model, positions, runs, ceilings).all();
}

}  // namespace spillway::app
