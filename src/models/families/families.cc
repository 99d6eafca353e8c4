#include <algorithm>
#include <array>

#include "base/error.h"
#include "models/families/all.h"

namespace spillway::models {
namespace {

constexpr std::array kAll{&kLlama,         &kMistral,   &kQwen2,     &kQwen3,      &kQwen3Moe,    &kMixtral,    &kGemma2,  &kGemma3,
                          &kGemma4,        &kPhi3,      &kOlmo2,     &kOlmo3,      &kSmolLm3,     &kMinistral3, &kSeedOss, &kGranite,
                          &kGraniteHybrid, &kLfm2,      &kGlm4,      &kGlm4Moe,    &kCohere2,     &kDeepSeekV3, &kKimiK2,  &kGptOss,
                          &kQwen35,        &kQwen35Moe, &kQwen3Next, &kDeepSeekV2, &kGlm4MoeLite, &kErnie45Moe};

}  // namespace

bool DecoderFamily::has_feature(std::string_view key) const { return std::ranges::find(features, key) != features.end(); }

std::span<const DecoderFamily* const> decoder_families() { return kAll; }

const DecoderFamily* find_decoder(std::string_view type) {
  const auto* found = std::ranges::find(kAll, type, [](const DecoderFamily* f) { return f->type; });
  return found == kAll.end() ? nullptr : *found;
}

const DecoderFamily& decoder_family(Family family) {
  const auto* found = std::ranges::find(kAll, family, [](const DecoderFamily* f) { return f->family; });
  require(found != kAll.end(), "[models] expected a family of decoders");
  return **found;
}

const DecoderStyle& style_of(const ModelConfig& config) { return decoder_family(config.family).style; }

std::string decoder_types() {
  std::string all;
  for (const DecoderFamily* family : kAll) all += (all.empty() ? "" : ", ") + std::string(family->type);
  return all;
}

}  // namespace spillway::models
