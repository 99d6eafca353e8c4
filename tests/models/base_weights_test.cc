// Tests quantized base weights with adapters (QLoRA): loss and gradients are bitwise those of a model whose weights are the dequantized
// ones.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <optional>

#include "data/safetensors/safetensors.h"
#include "models/lora.h"
#include "models/model.h"
#include "nn/eager.h"
#include "tests/models/support_reference.h"
#include "tests/support/fixtures.h"
#include "tests/support/numbers.h"

namespace spillway::models::base_weights_test {
namespace {

using kernels::WeightFormat;

// Reads a folder's base weights, and draws random values for adapters.
class Drawn final : public WeightSource {
 public:
  Drawn(const nn::Sequential& model, const std::string& folder) : base_(model, test::data(folder)) {}
  void read(const nn::Parameter& p, i64 begin, std::span<double> out) const override {
    if (!is_adapter(p)) return base_.read(p, begin, out);
    const RandomKey key = RandomKey{3}.derive(p.name);
    for (double& x : out) x = 0.05 * normal(key, 0, static_cast<u64>(begin++));
  }

 private:
  FolderWeights base_;
};

// A WeightSource that gives the dequantized weights of a model in memory.
class StoodFor final : public WeightSource {
 public:
  explicit StoodFor(const nn::Sequential& model) {
    for (const auto& p : model.parameters) {
      Tensor values = p->value();
      if (!p->is_plain()) kernels::dequantize(p->format, p->value(), values = empty(p->shape, p->dtype));
      std::vector<double>& all = values_[p->name];
      for (i64 i = 0; i < values.elems(); ++i) all.push_back(test::at(values, i));
    }
  }
  void read(const nn::Parameter& p, i64 begin, std::span<double> out) const override {
    std::copy_n(values_.at(p.name).begin() + begin, out.size(), out.begin());
  }

 private:
  std::map<std::string, std::vector<double>> values_;
};

struct Trained {
  Trained(const ModelConfig& config, DType dtype) : model(build(config, dtype)) {
    for (const auto& p : model.parameters) p->frozen = !is_adapter(*p);
  }
  double loss(const MicroBatch& batch) {
    autograd::Tape tape(&*weights);
    nn::Context context;
    context.tape = &tape;
    context.batch = &batch;
    context.loss_factor = 1.0 / 64;
    const nn::Variable sum = nn::run(model, context);
    sum.backward();
    return sum.value.item();
  }
  nn::Sequential model;
  std::optional<nn::EagerParameters> weights;
};

MicroBatch batch_of(const nn::Sequential& model, i64 vocabulary) {
  MicroBatch batch = nn::empty_batch(model, 2, 24);
  for (i64 i = 0; i < batch.tokens_BT.elems(); ++i) {
    batch.tokens_BT.data<i32>()[i] = static_cast<i32>(i * 37 % vocabulary);
    batch.targets_BT.data<i32>()[i] = static_cast<i32>(i * 53 % vocabulary);
  }
  batch.counted_targets = batch.targets_BT.elems();
  return batch;
}

using Case = std::tuple<const char*, WeightFormat, DType>;
class BaseWeights : public ::testing::TestWithParam<Case> {};

TEST_P(BaseWeights, HaveTheBitsOfWhatTheyStandFor) {
  const auto& [folder, format, dtype] = GetParam();
  ModelConfig config = read_config(test::data(folder));
  config.lora = LoraConfig{.rank = 4, .alpha = 8};
  Trained plain(config, dtype);
  config.base_weights = format;
  Trained kept(config, dtype);
  kept.weights.emplace(kept.model);
  fill(kept.model, Drawn(kept.model, folder));
  plain.weights.emplace(plain.model);
  fill(plain.model, StoodFor(kept.model));
  i64 fewer = 0;
  for (const auto& p : kept.model.parameters) fewer += !p->is_plain();
  EXPECT_GE(fewer, 8) << "all layers of products";
  const MicroBatch batch = batch_of(plain.model, config.vocabulary);
  const double want = plain.loss(batch);
  EXPECT_EQ(kept.loss(batch), want);
  for (const auto& p : plain.model.parameters) {
    if (p->frozen) continue;
    const Tensor a = plain.weights->gradient(p->id), b = kept.weights->gradient(p->id);
    ASSERT_TRUE(a.defined() && b.defined()) << p->name;
    EXPECT_EQ(std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.bytes())), 0) << p->name;
  }
  // A planted fault, the folder's own weights in place of the dequantized ones, must change the loss.
  fill(plain.model, Drawn(plain.model, folder));
  plain.weights->forget();
  EXPECT_NE(plain.loss(batch), want);
}

std::string name_of(const testing::TestParamInfo<Case>& entry) {
  const auto& [folder, format, dtype] = entry.param;
  const char* kept = format == WeightFormat::int8 ? "int8" : format == WeightFormat::nf4 ? "nf4" : "bf16";
  std::string text = std::string(folder) + "_" + kept + "_" + std::string(to_string(dtype));
  std::erase(text, '-');
  return text;
}
const auto kFamilies = ::testing::Values("gpt2-tiny", "llama-tiny", "mixtral-tiny");
INSTANTIATE_TEST_SUITE_P(Families, BaseWeights,
                         ::testing::Combine(kFamilies, ::testing::Values(WeightFormat::int8, WeightFormat::nf4),
                                            ::testing::Values(DType::f32, DType::f64, DType::bf16)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Wider, BaseWeights,
                         ::testing::Combine(kFamilies, ::testing::Values(WeightFormat::bf16), ::testing::Values(DType::f32, DType::f64)),
                         name_of);

// Quantizing any part of a parameter gives the bytes that quantizing the whole gives for that part.
TEST(QuantizedValues, OfAnyPartAreThoseOfTheWhole) {
  const auto p = nn::make_parameter("w", {30, 50}, DType::bf16, {}, WeightFormat::nf4);
  EXPECT_TRUE(p->frozen);
  EXPECT_EQ(p->stored_elems() * 2, 12 * 72);
  const auto values = [](const nn::Parameter& of, i64 begin, std::span<double> out) {
    EXPECT_LE(begin + static_cast<i64>(out.size()), of.elems());
    for (double& x : out) x = std::sin(static_cast<double>(begin++));
  };
  std::vector<std::byte> whole(12 * 72);
  nn::quantized_values(*p, values, 0, whole);
  for (const i64 cut : {2, 70, 72, 100, 144, 862}) {
    std::vector<std::byte> parts(whole.size());
    nn::quantized_values(*p, values, 0, std::span(parts).first(static_cast<size_t>(cut)));
    nn::quantized_values(*p, values, cut, std::span(parts).subspan(static_cast<size_t>(cut)));
    EXPECT_TRUE(parts == whole) << cut;
  }
  EXPECT_ANY_THROW(nn::quantized_values(*p, values, 800, std::span(whole).first(72)));
}

// Quantizing reads many units (of 128 weights) from a file at a time, and gives the same bytes wherever reads begin.
TEST(QuantizedValues, AreReadManyUnitsAtATime) {
  // a parameter whose weights are 160 units and a part of another unit
  const auto p = nn::make_parameter("w", {150, 137}, DType::bf16, {}, WeightFormat::nf4);
  int reads = 0;
  const auto values = [&](const nn::Parameter&, i64 begin, std::span<double> out) {
    ++reads;
    for (double& x : out) x = std::sin(static_cast<double>(begin++));
  };
  std::vector<std::byte> whole(161 * 72);
  nn::quantized_values(*p, values, 0, whole);
  EXPECT_EQ(reads, 3);
  for (const i64 cut : {70, 63 * 72, 64 * 72, 64 * 72 + 2, 160 * 72, 160 * 72 + 40}) {
    std::vector<std::byte> parts(whole.size());
    nn::quantized_values(*p, values, 0, std::span(parts).first(static_cast<size_t>(cut)));
    nn::quantized_values(*p, values, cut, std::span(parts).subspan(static_cast<size_t>(cut)));
    EXPECT_TRUE(parts == whole) << cut;
  }
}

TEST(QuantizedValues, OfNf4AreBitsandbytes) {
  const data::SafetensorsReader file(test::data("quantized/bitsandbytes.safetensors"));
  const data::TensorInfo *given = file.find("values"), *wanted = file.find("nf4");
  std::vector<double> want(static_cast<size_t>(wanted->shape.elems()));
  file.read_wide(*wanted, 0, want);
  const auto p = nn::make_parameter("w", given->shape, DType::f32, {}, WeightFormat::nf4);
  const Tensor units = empty({p->stored_elems()}, DType::f32), got = empty(p->shape, DType::f32);
  const auto read = [&](const nn::Parameter&, i64 begin, std::span<double> out) { file.read_wide(*given, begin, out); };
  nn::quantized_values(*p, read, 0, {units.raw(), static_cast<size_t>(units.bytes())});
  kernels::dequantize(WeightFormat::nf4, units, got);
  for (i64 i = 0; i < got.elems(); ++i) EXPECT_EQ(test::at(got, i), want[static_cast<size_t>(i)]) << i;
}

}  // namespace
}  // namespace spillway::models::base_weights_test
