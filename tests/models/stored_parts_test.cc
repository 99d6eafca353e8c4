// Tests parameters that folders store as parts of larger tensors: reading them in every form, and writing them back. In the larger tensors
// of these tests, each element's value tells its place, so a parameter's values are known from a formula that no strides enter.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <random>
#include <thread>

#include "base/error.h"
#include "data/safetensors/wide.h"
#include "models/export/export_tensors.h"
#include "models/weights.h"
#include "tests/support/temporary_folder.h"

namespace spillway::stored_parts_test {
namespace {

using data::TensorInfo;
using models::FolderWeights;
using nn::StoredPart;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Letters: E = experts, F = expert width, C = width, G = groups of a fused projection.
struct Sizes {
  i64 E = 3, F = 4, C = 5;
};

// The larger tensors of a folder, in the order of the axes that the form has.
enum class Form { stacked, interleaved };

const std::string kGateUp = "model.experts.gate_up_proj", kDown = "model.experts.down_proj";
std::string own_name(i64 e, const char* layer) { return "model.experts." + std::to_string(e) + "." + layer + ".weight"; }

// The value of an element of an expert's matrix: 1, 2, … over the gates [F, C], ups [F, C] and downs [C, F] of all experts in turn.
double value_of(const Sizes& s, i64 e, int layer, i64 row, i64 column) {
  const i64 columns = layer == 2 ? s.F : s.C;
  return static_cast<double>((e * 3 + layer) * s.F * s.C + row * columns + column + 1);
}

StoredPart part_of(const Sizes& s, Form form, i64 e, int layer) {
  const auto [E, F, C] = s;
  if (form == Form::stacked) {
    if (layer == 2) return {kDown, {E, C, F}, e * C * F, {{C * F, 1}}};
    return {kGateUp, {E, 2 * F, C}, (e * 2 + layer) * F * C, {{F, C}, {C, 1}}};
  }
  if (layer == 2) return {kDown, {E, F, C}, e * F * C, {{C, 1}, {F, C}}};
  return {kGateUp, {E, C, 2 * F}, e * C * 2 * F + layer, {{F, 2}, {C, 2 * F}}};
}

class Experts : public nn::Module {
 public:
  Experts(const Sizes& s, const std::vector<Form>& forms) {
    const char* const names[] = {"gate_proj", "up_proj", "down_proj"};
    for (i64 e = 0; e < s.E; ++e) {
      for (int layer = 0; layer < 3; ++layer) {
        const Shape shape = layer == 2 ? Shape{s.C, s.F} : Shape{s.F, s.C};
        parameters_.push_back({nn::make_parameter(own_name(e, names[layer]), shape, DType::f32, {})});
        for (const Form form : forms) parameters_.back().parameter->stored.push_back(part_of(s, form, e, layer));
      }
    }
  }
  nn::Variable forward(const nn::Variable& x, const nn::Context&) const override { return x; }
  std::vector<nn::ParameterUse> parameters() const override { return parameters_; }

 private:
  std::vector<nn::ParameterUse> parameters_;
};

nn::Sequential model_of(const Sizes& s, const std::vector<Form>& forms) {
  nn::Sequential model;
  model.push(std::make_unique<Experts>(s, forms));
  return model;
}

struct Whole {
  std::string name;
  Shape shape;
  std::vector<double> values;
};

// Returns the larger tensors of a form, filled by loops over their axes.
std::vector<Whole> wholes(const Sizes& s, Form form) {
  const bool stacked = form == Form::stacked;
  Whole gate_up{kGateUp, stacked ? Shape{s.E, 2 * s.F, s.C} : Shape{s.E, s.C, 2 * s.F}, {}};
  Whole down{kDown, stacked ? Shape{s.E, s.C, s.F} : Shape{s.E, s.F, s.C}, {}};
  for (i64 e = 0; e < s.E; ++e) {
    for (i64 i = 0; i < gate_up.shape[1]; ++i) {
      for (i64 j = 0; j < gate_up.shape[2]; ++j) {
        const int layer = static_cast<int>(stacked ? i / s.F : j % 2);
        gate_up.values.push_back(stacked ? value_of(s, e, layer, i % s.F, j) : value_of(s, e, layer, j / 2, i));
      }
    }
    for (i64 i = 0; i < down.shape[1]; ++i) {
      for (i64 j = 0; j < down.shape[2]; ++j) down.values.push_back(stacked ? value_of(s, e, 2, i, j) : value_of(s, e, 2, j, i));
    }
  }
  return {gate_up, down};
}

// Returns a tensor for each matrix of each expert.
std::vector<Whole> singles(const Sizes& s) {
  std::vector<Whole> all;
  const char* const names[] = {"gate_proj", "up_proj", "down_proj"};
  for (i64 e = 0; e < s.E; ++e) {
    for (int layer = 0; layer < 3; ++layer) {
      Whole one{own_name(e, names[layer]), layer == 2 ? Shape{s.C, s.F} : Shape{s.F, s.C}, {}};
      for (i64 row = 0; row < one.shape[0]; ++row) {
        for (i64 column = 0; column < one.shape[1]; ++column) one.values.push_back(value_of(s, e, layer, row, column));
      }
      all.push_back(std::move(one));
    }
  }
  return all;
}

std::vector<std::byte> bytes_of(const std::vector<double>& values, DType dtype) {
  std::vector<std::byte> bytes(values.size() * static_cast<size_t>(size_of(dtype)));
  data::read_narrowed([&](i64 begin, std::span<double> out) { std::copy_n(values.begin() + begin, out.size(), out.begin()); }, dtype,
                      bytes);
  return bytes;
}

void write(const std::filesystem::path& folder, const std::vector<Whole>& tensors, DType dtype) {
  std::vector<TensorInfo> infos;
  for (const Whole& tensor : tensors) infos.push_back({.name = tensor.name, .dtype = dtype, .shape = tensor.shape});
  data::SafetensorsWriter writer(folder / "model.safetensors", infos);
  for (size_t i = 0; i < tensors.size(); ++i) writer.write(writer.tensors()[i], 0, bytes_of(tensors[i].values, dtype));
  writer.finish();
}

std::vector<double> read(const models::WeightSource& source, const nn::Parameter& p, i64 begin, i64 count) {
  std::vector<double> values(static_cast<size_t>(count));
  source.read(p, begin, values);
  return values;
}

class StoredParts : public ::testing::Test {
 protected:
  std::string refusal(const nn::Sequential& model, const std::vector<Whole>& tensors) {
    write(folder_.path(), tensors, DType::f32);
    try {
      const FolderWeights weights(model, folder_.path());
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::data);
      return error.what();
    }
    return "accepted";
  }
  const Sizes sizes_;
  const test::TemporaryFolder folder_;
};

TEST_F(StoredParts, AreReadInEveryFormAndRange) {
  const nn::Sequential model = model_of(sizes_, {Form::interleaved, Form::stacked});
  const std::vector<Whole> want = singles(sizes_);
  for (const auto& tensors : {wholes(sizes_, Form::stacked), wholes(sizes_, Form::interleaved), singles(sizes_)}) {
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {  // values up to 180 are exact in each type
      write(folder_.path(), tensors, dtype);
      const FolderWeights weights(model, folder_.path());
      for (size_t n = 0; n < want.size(); ++n) {
        const nn::Parameter& p = *model.parameters[n];
        EXPECT_TRUE(weights.is_stored_as(p, dtype));
        for (i64 begin = 0; begin < p.elems(); ++begin) {
          for (const i64 count : {i64{1}, i64{7}, p.elems() - begin}) {
            if (begin + count > p.elems()) continue;
            const auto first = want[n].values.begin() + begin;
            ASSERT_EQ(read(weights, p, begin, count), std::vector<double>(first, first + count)) << p.name << " from " << begin;
          }
        }
        for (const DType as : {DType::f32, DType::bf16, DType::f64}) {
          std::vector<std::byte> bytes(static_cast<size_t>(p.elems() * size_of(as)));
          weights.read_as(p, 0, as, bytes);
          EXPECT_EQ(bytes, bytes_of(want[n].values, as)) << p.name;
        }
        EXPECT_THROW(read(weights, p, p.elems() - 1, 2), Error);
      }
    }
  }
}

// A part whose rows are split into groups, as the queries in Qwen3-Next's projection of queries, keys, values and gates by key head.
TEST_F(StoredParts, MayBeRowsOfGroups) {
  constexpr i64 G = 3, Q = 2, K = 1, C = 5, R = Q + K;
  class Grouped : public nn::Module {
   public:
    Grouped() {
      const Shape whole{G * R, C};
      q->stored = {{"model.qk.weight", whole, 0, {{G, R * C}, {Q * C, 1}}}};
      k->stored = {{"model.qk.weight", whole, Q * C, {{G, R * C}, {K * C, 1}}}};
    }
    nn::Variable forward(const nn::Variable& x, const nn::Context&) const override { return x; }
    std::vector<nn::ParameterUse> parameters() const override { return {{q}, {k}}; }
    std::shared_ptr<nn::Parameter> q = nn::make_parameter("model.q.weight", {G * Q, C}, DType::f32, {});
    std::shared_ptr<nn::Parameter> k = nn::make_parameter("model.k.weight", {G * K, C}, DType::f32, {});
  };
  nn::Sequential model;
  model.push(std::make_unique<Grouped>());
  Whole whole{"model.qk.weight", {G * R, C}, {}};
  for (i64 i = 0; i < G * R * C; ++i) whole.values.push_back(static_cast<double>(i));
  write(folder_.path(), {whole}, DType::f32);
  const FolderWeights weights(model, folder_.path());
  for (const auto& p : model.parameters) {
    const i64 rows = p->shape[0] / G, skipped = rows == Q ? 0 : Q;
    const std::vector<double> got = read(weights, *p, 0, p->elems());
    for (i64 row = 0; row < p->shape[0]; ++row) {
      for (i64 c = 0; c < C; ++c)
        EXPECT_EQ(got[static_cast<size_t>(row * C + c)], static_cast<double>((row / rows * R + skipped + row % rows) * C + c));
    }
  }
}

TEST_F(StoredParts, KeepTheBitsOfNaN) {
  const nn::Sequential model = model_of(sizes_, {Form::interleaved});
  write(folder_.path(), wholes(sizes_, Form::interleaved), DType::bf16);
  const auto path = folder_ / "model.safetensors";
  const i64 header = static_cast<i64>(std::filesystem::file_size(path)) - (sizes_.E * 3 * sizes_.F * sizes_.C) * 2;
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(header + 2 * (2 * sizes_.F + 1));  // column 1, feature 0 of the first expert's up
    file.write("\x81\x7f", 2);                    // a signalling NaN, which a conversion would change
  }
  const FolderWeights weights(model, folder_.path());
  u16 bits = 0;
  weights.read_as(*model.parameters[1], 1, DType::bf16, std::as_writable_bytes(std::span(&bits, 1)));
  EXPECT_EQ(bits, 0x7f81);
}

// The sizes exceed those of a band (4 MiB) in both directions. Several threads read pieces in random order, as a run's load does.
TEST_F(StoredParts, AreReadInBandsByManyThreads) {
  const Sizes large{.E = 2, .F = 700, .C = 1700};
  const nn::Sequential model = model_of(large, {Form::interleaved});
  write(folder_.path(), wholes(large, Form::interleaved), DType::f32);
  const FolderWeights weights(model, folder_.path());
  std::vector<std::jthread> threads;
  std::array<i64, 4> wrong{};
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      for (int piece = 0; piece < 60; ++piece) {
        const auto n = static_cast<i64>(random() % model.parameters.size());
        const nn::Parameter& p = *model.parameters[static_cast<size_t>(n)];
        const i64 count = static_cast<i64>(random() % 16384) + 1, begin = static_cast<i64>(random()) % (p.elems() - count);
        const std::vector<double> got = read(weights, p, std::abs(begin), count);
        for (i64 i = 0; i < count; ++i) {
          const i64 at = std::abs(begin) + i;
          const auto want = static_cast<float>(value_of(large, n / 3, static_cast<int>(n % 3), at / p.shape[1], at % p.shape[1]));
          wrong[t] += got[static_cast<size_t>(i)] != static_cast<double>(want);
        }
      }
    });
  }
  threads.clear();
  for (const i64 count : wrong) EXPECT_EQ(count, 0);
}

// Writes all tensors of `model`, read from `source`, and returns the file's bytes.
std::string exported(const nn::Sequential& model, const models::WeightSource& source, DType dtype, const std::filesystem::path& path) {
  const auto tensors = models::export_tensors(model, [&](const nn::Parameter& p) { return models::first_place(p, dtype); });
  std::vector<TensorInfo> infos;
  for (const models::ExportTensor& tensor : tensors) infos.push_back({.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape});
  data::SafetensorsWriter writer(path, infos);
  for (size_t n = 0; n < tensors.size(); ++n) {
    models::write_tensor(source, tensors[n],
                         [&](i64 offset, std::span<const std::byte> bytes) { writer.write(writer.tensors()[n], offset, bytes); });
  }
  writer.finish();
  return data::File::open(path).text();
}

TEST_F(StoredParts, AreExportedInTheFirstForm) {
  for (const Sizes& s : {sizes_, Sizes{.E = 2, .F = 700, .C = 1700}}) {  // the second has tensors of several windows
    for (const Form form : {Form::stacked, Form::interleaved}) {
      const nn::Sequential model = model_of(s, {form});
      for (const bool single : {false, true}) {
        const DType dtype = s.F > 100 ? DType::f32 : DType::bf16;
        write(folder_.path(), wholes(s, form), dtype);
        const std::string want = data::File::open(folder_ / "model.safetensors").text();
        if (single) write(folder_.path(), singles(s), dtype);
        const FolderWeights weights(model, folder_.path());
        EXPECT_TRUE(exported(model, weights, dtype, folder_ / "exported.safetensors") == want) << "single " << single;
      }
    }
  }
}

TEST_F(StoredParts, ThatDoNotFillTheirTensorAreABug) {
  const nn::Sequential model = model_of(sizes_, {Form::stacked});
  write(folder_.path(), wholes(sizes_, Form::stacked), DType::f32);
  const FolderWeights weights(model, folder_.path());
  auto tensors = models::export_tensors(model, [](const nn::Parameter& p) { return models::first_place(p, DType::f32); });
  tensors[0].members.pop_back();
  EXPECT_THROW(models::write_tensor(weights, tensors[0], [](i64, std::span<const std::byte>) {}), Error);
}

TEST_F(StoredParts, RefusesTensorsThatDoNotFit) {
  const nn::Sequential model = model_of(sizes_, {Form::interleaved, Form::stacked});
  std::vector<Whole> tensors = wholes(Sizes{.E = 4}, Form::stacked);
  const std::string more_experts = refusal(model, tensors);
  EXPECT_THAT(more_experts, HasSubstr(kGateUp + " (expected shape [3, 5, 8] or [3, 8, 5], got [4, 8, 5])"));
  EXPECT_EQ(more_experts.find(kGateUp), more_experts.rfind(kGateUp)) << "each tensor is named once";
  tensors = wholes(sizes_, Form::stacked);
  tensors.pop_back();
  EXPECT_THAT(refusal(model, tensors), HasSubstr("missing: model.experts.0.down_proj.weight (by itself or in model.experts.down_proj)"));
  tensors = singles(sizes_);
  tensors.push_back(wholes(sizes_, Form::stacked)[0]);
  EXPECT_THAT(refusal(model, tensors), AllOf(HasSubstr("no parameter"), HasSubstr(kGateUp), Not(HasSubstr("missing"))));
}

TEST_F(StoredParts, TakeTheBaseModelsNames) {
  const nn::Sequential model = model_of(sizes_, {Form::stacked});
  std::vector<Whole> tensors = wholes(sizes_, Form::stacked);
  for (Whole& tensor : tensors) tensor.name = "layers." + tensor.name.substr(6);
  EXPECT_THAT(refusal(model, tensors), HasSubstr("missing"));
  for (Whole& tensor : tensors) tensor.name = tensor.name.substr(7);
  EXPECT_EQ(refusal(model, tensors), "accepted");
}

}  // namespace
}  // namespace spillway::stored_parts_test
