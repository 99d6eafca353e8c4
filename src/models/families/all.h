// Names every family of decoders for the list in families.cc.
#pragma once
#include "models/families/family.h"

namespace spillway::models {

extern const DecoderFamily kLlama, kMistral, kMinistral3, kMixtral, kSeedOss;
extern const DecoderFamily kQwen2, kQwen3, kQwen3Moe;
extern const DecoderFamily kGemma2, kGemma3, kGemma4;
extern const DecoderFamily kDeepSeekV2, kDeepSeekV3, kKimiK2;
extern const DecoderFamily kPhi3;
extern const DecoderFamily kOlmo2, kOlmo3;
extern const DecoderFamily kSmolLm3;
extern const DecoderFamily kGranite, kGraniteHybrid;
extern const DecoderFamily kLfm2;
extern const DecoderFamily kQwen35, kQwen35Moe, kQwen3Next;
extern const DecoderFamily kGlm4, kGlm4Moe, kGlm4MoeLite;
extern const DecoderFamily kCohere2;
extern const DecoderFamily kErnie45Moe;
extern const DecoderFamily kGptOss;

}  // namespace spillway::models
