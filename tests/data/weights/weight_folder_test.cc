#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "data/weights/weight_folder.h"
#include "tests/data/support_files.h"
#include "tests/support/fixtures.h"

namespace spillway::data::weight_folder_test {
namespace {

using spillway::test::error_of;
using spillway::test::put;
using spillway::test::TemporaryFolder;
using testing::HasSubstr;

template <class T>
void write_one(const std::filesystem::path& path, const std::string& name, DType dtype, const std::vector<T>& values) {
  SafetensorsWriter writer(path, {{.name = name, .dtype = dtype, .shape = {static_cast<i64>(values.size())}}});
  writer.write(writer.tensors()[0], 0, std::as_bytes(std::span(values)));
  writer.finish();
}

std::vector<double> read_all(const WeightFolder& folder, const std::string& name) {
  std::vector<double> out(static_cast<size_t>(folder.find(name)->shape.elems()));
  folder.read(name, 0, out);
  return out;
}

TEST(WeightFolder, ASingleFile) {
  const WeightFolder folder(spillway::test::data("gpt2-tiny"));
  const auto names = folder.names();
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  const auto wte = read_all(folder, "transformer.wte.weight");
  const SafetensorsReader file(spillway::test::data("gpt2-tiny/model.safetensors"));
  std::vector<float> same(wte.size());
  file.read(*file.find("transformer.wte.weight"), 0, std::as_writable_bytes(std::span(same)));
  for (size_t i = 0; i < wte.size(); ++i) EXPECT_EQ(wte[i], same[i]);
  std::vector<double> piece(5);
  folder.read("transformer.wte.weight", 100, piece);
  EXPECT_EQ(piece, (std::vector<double>(wte.begin() + 100, wte.begin() + 105)));
}

// Every 16-bit pattern, including NaNs, is returned as stored. If another type is requested, the number is widened and rounded to it.
TEST(WeightFolder, GivesTheBytesOfATypeThatIsStored) {
  std::vector<u16> all(65536);
  std::iota(all.begin(), all.end(), u16{0});
  for (const DType stored : {DType::bf16, DType::f16}) {
    const TemporaryFolder folder;
    write_one(folder / "model.safetensors", "x", stored, all);
    const WeightFolder weights(folder.path());
    std::vector<u16> same(all.size() - 3);
    weights.read_as("x", 3, stored, std::as_writable_bytes(std::span(same)));
    EXPECT_TRUE(std::equal(same.begin(), same.end(), all.begin() + 3));
    const std::vector<double> wide = read_all(weights, "x");
    std::vector<float> floats(all.size());
    weights.read_as("x", 0, DType::f32, std::as_writable_bytes(std::span(floats)));
    std::vector<u16> other(all.size());
    const bool to_f16 = stored == DType::bf16;
    weights.read_as("x", 0, to_f16 ? DType::f16 : DType::bf16, std::as_writable_bytes(std::span(other)));
    for (size_t i = 0; i < all.size(); ++i) {
      if (std::isnan(wide[i])) {
        ASSERT_TRUE(std::isnan(floats[i]));
        continue;
      }
      ASSERT_EQ(static_cast<double>(floats[i]), wide[i]);
      const auto narrow_one = static_cast<float>(wide[i]);
      ASSERT_EQ(other[i], to_f16 ? narrow<Float16>(narrow_one).bits : narrow<BFloat16>(narrow_one).bits) << i;
    }
  }
}

TEST(WeightFolder, WidensEveryFloatingType) {
  const TemporaryFolder folder;
  {
    const std::vector<u16> values = {0x3f80, 0xc000, 0x7f80, 0x0001, 0x8000, 0x7fc0};
    write_one(folder / "model.safetensors", "x", DType::bf16, values);
  }
  auto x = read_all(WeightFolder(folder.path()), "x");
  EXPECT_EQ((std::vector<double>(x.begin(), x.begin() + 4)),
            (std::vector<double>{1, -2, std::numeric_limits<double>::infinity(), 0x1p-133}));
  EXPECT_TRUE(std::signbit(x[4]) && x[4] == 0 && std::isnan(x[5]));

  // Every f16 value is compared with the definition of the IEEE format.
  std::vector<u16> halves(65536);
  std::iota(halves.begin(), halves.end(), u16{0});
  write_one(folder / "model.safetensors", "x", DType::f16, halves);
  x = read_all(WeightFolder(folder.path()), "x");
  for (size_t i = 0; i < x.size(); ++i) {
    const int exponent = static_cast<int>(i >> 10 & 31), mantissa = static_cast<int>(i & 1023);
    double wanted = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    if (exponent == 31) wanted = mantissa ? std::nan("") : std::numeric_limits<double>::infinity();
    if (i & 0x8000) wanted = -wanted;
    ASSERT_TRUE(std::isnan(wanted) ? std::isnan(x[i]) : x[i] == wanted && std::signbit(x[i]) == std::signbit(wanted)) << i;
  }

  write_one<double>(folder / "model.safetensors", "x", DType::f64, {1e-300, 0.1});
  EXPECT_EQ(read_all(WeightFolder(folder.path()), "x"), (std::vector<double>{1e-300, 0.1}));
}

TEST(WeightFolder, WrongTensorsAreSaidSo) {
  const TemporaryFolder folder;
  write_one<i32>(folder / "model.safetensors", "ids", DType::int32, {1, 2});
  const WeightFolder source(folder.path());
  std::vector<double> out(2);
  EXPECT_THAT(error_of(ErrorCode::data, [&] { source.read("ids", 0, out); }), HasSubstr("i32"));
  EXPECT_THAT(error_of(ErrorCode::data, [&] { source.read("weights", 0, out); }), HasSubstr("\"weights\""));
  EXPECT_EQ(source.find("weights"), nullptr);
}

TEST(WeightFolder, ShardsByTheIndex) {
  const TemporaryFolder folder;
  write_one<float>(folder / "one.safetensors", "b", DType::f32, {1, 2});
  write_one<float>(folder / "two.safetensors", "a", DType::f32, {3});
  put(folder / "model.safetensors.index.json",
      R"({"metadata":{"total_size":12},"weight_map":{"b":"one.safetensors","a":"two.safetensors"}})");
  const WeightFolder source(folder.path());
  EXPECT_EQ(source.names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(read_all(source, "a"), std::vector<double>{3});
  EXPECT_EQ(read_all(source, "b"), (std::vector<double>{1, 2}));
}

// As in transformers, all tensors of a shard file are read, even if the index does not name them.
TEST(WeightFolder, TensorsThatTheIndexDoesNotNameAreThere) {
  const TemporaryFolder folder;
  SafetensorsWriter writer(folder / "one.safetensors", {{.name = "a", .shape = {1}}, {.name = "b", .shape = {1}}});
  const float values[] = {1, 2};
  for (size_t i = 0; i < 2; ++i) writer.write(writer.tensors()[i], 0, std::as_bytes(std::span(values).subspan(i, 1)));
  writer.finish();
  put(folder / "model.safetensors.index.json", R"({"weight_map":{"a":"one.safetensors"}})");
  EXPECT_EQ(read_all(WeightFolder(folder.path()), "b"), std::vector<double>{2});
  write_one<float>(folder / "two.safetensors", "b", DType::f32, {3});
  put(folder / "model.safetensors.index.json", R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
  EXPECT_THAT(error_of(ErrorCode::data, [&] { WeightFolder source(folder.path()); }), HasSubstr("\"b\" is in two files"));
}

TEST(WeightFolder, NamesLoseTheirWrappers) {
  EXPECT_EQ(bare_name("model.layers.0.mlp.weight"), "model.layers.0.mlp.weight");
  EXPECT_EQ(bare_name("module.module._orig_mod.h.0._fsdp_wrapped_module._fpw_module.w"), "h.0.w");
  EXPECT_EQ(bare_name("a._checkpoint_wrapped_module.b"), "a.b");
  EXPECT_EQ(bare_name("modules.my_module"), "modules.my_module");
  EXPECT_EQ(bare_name("a.module"), "a.module") << "a tensor's own name";
  EXPECT_EQ(bare_name(""), "");
  const TemporaryFolder folder;
  write_one<float>(folder / "model.safetensors", "module.a", DType::f32, {1});
  const WeightFolder source(folder.path());
  EXPECT_EQ(read_all(source, "a"), std::vector<double>{1});
  EXPECT_EQ(source.find("module.a"), nullptr);
  EXPECT_THAT(source.wrappers_note(), HasSubstr("module.a is read as a"));
  SafetensorsWriter writer(folder / "model.safetensors", {{.name = "module.a", .shape = {1}}, {.name = "_orig_mod.a", .shape = {1}}});
  const float value = 1;
  for (const TensorInfo& tensor : writer.tensors()) writer.write(tensor, 0, std::as_bytes(std::span(&value, 1)));
  writer.finish();
  EXPECT_THAT(error_of(ErrorCode::data, [&] { WeightFolder twice(folder.path()); }), HasSubstr("expected only one of them"));
}

TEST(WeightFolder, ComparesTensors) {
  const TemporaryFolder folder;
  std::vector<float> values(20000, 1.5F);
  write_one(folder / "one.safetensors", "a", DType::f32, values);
  write_one(folder / "two.safetensors", "b", DType::f32, values);
  values.back() = 2;
  write_one(folder / "three.safetensors", "c", DType::f32, values);
  put(folder / "model.safetensors.index.json", R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors","c":"three.safetensors"}})");
  const WeightFolder source(folder.path());
  EXPECT_TRUE(source.equal("a", "b"));
  EXPECT_FALSE(source.equal("a", "c"));
}

TEST(WeightFolder, APointerOfGitLfsIsNamed) {
  for (const char* name : {"model.safetensors", "pytorch_model.bin", "model.safetensors.index.json"}) {
    const TemporaryFolder folder;
    put(folder / name, "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4840412800\n");
    EXPECT_THAT(error_of(ErrorCode::data, [&] { WeightFolder source(folder.path()); }),
                testing::AllOf(HasSubstr("Git LFS pointer"), HasSubstr("4840412800 bytes"), HasSubstr("git lfs pull"), HasSubstr(name)));
  }
}

TEST(WeightFolder, EveryEntryOfTheIndexIsChecked) {
  const TemporaryFolder folder;
  write_one<float>(folder / "one.safetensors", "a", DType::f32, {1});
  const auto refused = [&](const std::string& index, const char* why) {
    put(folder / "model.safetensors.index.json", index);
    EXPECT_THAT(error_of(ErrorCode::data, [&] { WeightFolder source(folder.path()); }), HasSubstr(why)) << index.substr(0, 80);
  };
  refused(R"({"weight_map":{"a":"one.safetensors","b":"one.safetensors"}})", "\"b\"");
  refused(R"({"weight_map":{"a":"three.safetensors"}})", "three.safetensors");
  refused(R"({"weight_map":{"a":"../one.safetensors"}})", "plain name");
  refused(R"({"weight_map":{"a":".."}})", "plain name");
  refused(R"({"weight_map":{"a":"one\u0000.safetensors"}})", "plain name");
  refused(R"({"weight_map":{"a":1}})", "file name");
  refused(R"({"weight_map":{"a":"one.safetensors","a":"one.safetensors"}})", "twice");
  refused(R"({"weight_map":[]})", "weight_map");
  refused(R"([])", "weight_map");
  refused(R"({)", "expected JSON");
  refused("{\"a\":\"\xff\"}", "expected JSON");
  refused(std::string(100000, '['), "nested at most 200 deep");
  std::filesystem::remove(folder / "model.safetensors.index.json");
  EXPECT_THAT(error_of(ErrorCode::data, [&] { WeightFolder source(folder.path()); }), HasSubstr("model.safetensors.index.json"));
}

}  // namespace
}  // namespace spillway::data::weight_folder_test
