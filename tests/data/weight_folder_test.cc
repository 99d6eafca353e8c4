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

  // Every half: value by value against the definition of the format.
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
  refused(R"({)", "not JSON");
  refused("{\"a\":\"\xff\"}", "not JSON");
  refused(std::string(100000, '['), "nests too deeply");
  std::filesystem::remove(folder / "model.safetensors.index.json");
  EXPECT_THAT(error_of(ErrorCode::data, [&] { WeightFolder source(folder.path()); }), HasSubstr("model.safetensors.index.json"));
}

}  // namespace
}  // namespace spillway::data::weight_folder_test
