// Tests that filling and saving a model gives the same bytes whether its parameters are in GPU memory or in host memory.
#include <gtest/gtest.h>

#include <fstream>

#include "models/export/save.h"
#include "models/lora.h"
#include "models/model.h"
#include "models/presets.h"
#include "models/weights.h"
#include "nn/eager.h"
#include "tests/support/gpu.h"
#include "tests/support/numbers.h"
#include "tests/support/temporary_folder.h"

namespace spillway::models::weights_cuda_test {
namespace {

class WeightsOnGpu : public test::GpuTest {};

std::string bytes_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A model whose parameters are on the current stream's device and are filled from `source`.
struct Held {
  Held(const ModelConfig& config, DType dtype, const std::function<std::unique_ptr<WeightSource>(const nn::Sequential&)>& source)
      : model(build(config, dtype)), memory(model) {
    fill(model, *source(model));
  }
  nn::Sequential model;
  nn::EagerParameters memory;
};

std::unique_ptr<WeightSource> scratch(const nn::Sequential&) { return std::make_unique<ScratchWeights>(42); }

TEST_F(WeightsOnGpu, AreFilledAndSavedToTheBit) {
  const test::TemporaryFolder folder;
  const std::vector<DType> one{DType::f32}, each{DType::f32, DType::f64, DType::bf16, DType::f16};
  for (const auto& [name, dtypes] : {std::pair("gpt2-tiny", each), std::pair("resnet20", one)}) {
    for (const DType dtype : dtypes) {
      SCOPED_TRACE(std::string(name) + " " + std::string(to_string(dtype)));
      const ModelConfig config = preset(name);
      const Held here(config, dtype, scratch);
      save(here.model, folder / "here");
      gpu().run([&] {
        const Held there(config, dtype, scratch);
        ASSERT_TRUE(there.model.parameters[0]->value().device().is_cuda());
        save(there.model, folder / "there");
        const Held again(config, dtype,
                         [&](const nn::Sequential& model) { return std::make_unique<FolderWeights>(model, folder / "here"); });
        for (size_t i = 0; i < here.model.parameters.size(); ++i) {
          const Tensor want = here.model.parameters[i]->value();
          EXPECT_TRUE(test::same_bits(to_host(there.model.parameters[i]->value()), want)) << here.model.parameters[i]->name;
          EXPECT_TRUE(test::same_bits(to_host(again.model.parameters[i]->value()), want)) << here.model.parameters[i]->name;
        }
      });
      EXPECT_TRUE(bytes_of(folder / "there" / "model.safetensors") == bytes_of(folder / "here" / "model.safetensors"));
    }
  }
}

// Weights of a 4-bit base model are copied to the GPU in their quantized units. Adapters are not quantized.
TEST_F(WeightsOnGpu, OfABaseInFewBitsAreFilledToTheBit) {
  ModelConfig config = preset("llama-tiny");
  config.lora = LoraConfig{.rank = 2};
  config.base_weights = kernels::WeightFormat::nf4;
  const Held here(config, DType::bf16, scratch);
  gpu().run([&] {
    const Held there(config, DType::bf16, scratch);
    int quantized = 0;
    for (size_t i = 0; i < here.model.parameters.size(); ++i) {
      quantized += !here.model.parameters[i]->is_plain();
      EXPECT_TRUE(test::same_bits(to_host(there.model.parameters[i]->value()), here.model.parameters[i]->value()))
          << here.model.parameters[i]->name;
    }
    EXPECT_GT(quantized, 0);
  });
}

}  // namespace
}  // namespace spillway::models::weights_cuda_test
