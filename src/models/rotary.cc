#include "models/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace spillway::models {
namespace {

double llama3_scaled(double frequency, const RopeScaling& s) {
  const double wavelength = 2 * std::numbers::pi / frequency, original = static_cast<double>(s.original_positions);
  if (wavelength < original / s.high_freq_factor) return frequency;
  if (wavelength > original / s.low_freq_factor) return frequency / s.factor;
  const double keep = (original / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  return (1 - keep) * frequency / s.factor + keep * frequency;
}

// The limits of yarn, as indices of element pairs: pairs from index `high` on are
// stretched, those up to index `low` are kept, and those between are blended.
struct YarnLimits {
  double low, high;
  YarnLimits(const RopeScaling& s, double theta, i64 elements) {
    const double n = static_cast<double>(elements), positions = static_cast<double>(s.original_positions);
    // Returns the (fractional) index of the pair of elements that makes `turns` turns within the original positions.
    const auto pair_of = [&](double turns) { return n * std::log(positions / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta)); };
    low = pair_of(s.beta_fast), high = pair_of(s.beta_slow);
    if (s.whole_pairs) low = std::floor(low), high = std::ceil(high);
    low = std::max(low, 0.0), high = std::min(high, n - 1);
    if (low == high) high += 0.001;
  }
  double kept(i64 pair) const { return 1 - std::clamp((static_cast<double>(pair) - low) / (high - low), 0.0, 1.0); }
};

}  // namespace

Rotary rotary_of(const ModelConfig& c, i64 layer) {
  const bool local = c.local_rope_theta && c.is_windowed(layer);
  const double theta = local ? *c.local_rope_theta : c.rope_theta;
  const i64 elements = c.rotary_dim > 0 ? c.rotary_dim : c.head_dim_of(layer);
  Rotary rotary;
  for (i64 i = 0; i < elements; i += 2)
    rotary.frequencies.push_back(1 / std::pow(theta, static_cast<double>(i) / static_cast<double>(elements)));
  if (local || !c.rope_scaling) return rotary;
  const RopeScaling& s = *c.rope_scaling;
  rotary.original_positions = s.original_positions;
  switch (s.kind) {
    case RopeScaling::Kind::llama3:
      for (double& f : rotary.frequencies) f = llama3_scaled(f, s);
      break;
    case RopeScaling::Kind::linear:
      for (double& f : rotary.frequencies) f /= s.factor;
      break;
    case RopeScaling::Kind::yarn: {
      const YarnLimits limits(s, theta, elements);
      for (size_t i = 0; i < rotary.frequencies.size(); ++i) {
        const double kept = limits.kept(static_cast<i64>(i)), f = rotary.frequencies[i];
        rotary.frequencies[i] = f / s.factor * (1 - kept) + f * kept;
      }
      rotary.scaling = s.attention_factor;
      break;
    }
    case RopeScaling::Kind::proportional: {
      // As transformers truncates it.
      const auto rotated = static_cast<size_t>(s.share * static_cast<double>(elements) / 2);
      for (size_t i = 0; i < rotary.frequencies.size(); ++i) rotary.frequencies[i] = i < rotated ? rotary.frequencies[i] / s.factor : 0;
      break;
    }
    case RopeScaling::Kind::longrope:
      rotary.long_frequencies = rotary.frequencies;
      for (size_t i = 0; i < rotary.frequencies.size(); ++i) {
        rotary.frequencies[i] /= s.short_factors[i];
        rotary.long_frequencies[i] /= s.long_factors[i];
      }
      rotary.scaling = s.attention_factor;
      break;
  }
  return rotary;
}

}  // namespace spillway::models
