// Tests that a key/value cache in host memory gives bitwise the same logits as a cache on the device.
#include "tests/parallel/run/support_cache_place.h"

namespace spillway::test::cache_place_test {
namespace {

models::ModelConfig of_many_layers(const char* preset) {
  models::ModelConfig config = models::preset(preset);
  config.layers = 6;
  return config;
}

TEST(CachePlace, ChangesNoBit) {
  for (const char* preset : {"gpt2-tiny", "llama-tiny"}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(std::string(preset) + " " + std::string(to_string(dtype)));
      expect_the_place_of_the_cache_changes_no_bit(of_many_layers(preset), dtype, false);
    }
  }
}

TEST(CachePlace, IsMemory) {
  RunOptions o;
  o.model = models::preset("gpt2-tiny");
  const nn::Sequential model = models::build(o.model, DType::f32);
  parallel::PlanRequest request = plan_request(model, o, 0, 0);
  request.training = false;
  request.cache_positions = 64;
  request.placement.cache = parallel::Tier::nvme;
  EXPECT_ANY_THROW(make_plan(request));
}

}  // namespace
}  // namespace spillway::test::cache_place_test
