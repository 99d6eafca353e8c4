#include "data/safetensors/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <random>
#include <thread>
#include <tuple>

#include "tests/data/support_files.h"
#include "tests/support/fixtures.h"

namespace spillway::data::safetensors_test {
namespace {

using spillway::test::bytes_of;
using spillway::test::error_of;
using spillway::test::put;
using spillway::test::raw;
using spillway::test::TemporaryFolder;
using testing::HasSubstr;

std::string with_length(const std::string& header, const std::string& data = "") { return raw<u64>({header.size()}) + header + data; }

std::vector<std::byte> read_all(const SafetensorsReader& file, const std::string& name) {
  const TensorInfo* info = file.find(name);
  EXPECT_NE(info, nullptr) << name;
  std::vector<std::byte> bytes(static_cast<size_t>(info->bytes()));
  file.read(*info, 0, bytes);
  return bytes;
}

TEST(SafetensorsHostile, EveryVerdictOfTheIndex) {
  const auto folder = spillway::test::data("safetensors-hostile");
  const auto index = nlohmann::json::parse(bytes_of(folder / "index.json"));
  int good = 0, bad = 0;
  for (const auto& entry : index["files"]) {
    const std::string name = entry["file"];
    ASSERT_EQ(static_cast<i64>(std::filesystem::file_size(folder / name)), entry["bytes"].get<i64>()) << name;
    if (entry["valid"]) {
      ++good;
      EXPECT_NO_THROW({
        const SafetensorsReader reader(folder / name);
        for (const TensorInfo& t : reader.tensors()) read_all(reader, t.name);
      }) << name;
    } else {
      ++bad;
      const std::string text = error_of(ErrorCode::data, [&] { SafetensorsReader reader(folder / name); });
      EXPECT_THAT(text, HasSubstr(name));
      EXPECT_THAT(text, testing::StartsWith("[safetensors]"));
    }
  }
  EXPECT_EQ(good, 7);
  EXPECT_EQ(bad, 26);
}

TEST(SafetensorsHostile, TheReasonIsNamed) {
  const std::pair<const char*, std::vector<const char*>> reasons[] = {
      {"bad_empty_file", {"8 bytes", "got 0"}},
      {"bad_truncated_header", {"only 65 bytes"}},
      {"bad_header_huge", {"9223372036854775809", "limit"}},
      {"bad_header_over_limit", {"limit of 100000000"}},
      {"bad_header_zero_length", {"empty"}},
      {"bad_overlap", {"\"b\"", "overlap"}},
      {"bad_hole", {"\"b\"", "gap"}},
      {"bad_hole_at_start", {"\"a\"", "gap"}},
      {"bad_beyond_end", {"cut short"}},
      {"bad_reversed_offsets", {"\"a\"", "before it begins"}},
      {"bad_unknown_dtype", {"\"a\"", "F31"}},
      {"bad_duplicate_key", {"\"a\"", "twice"}},
      {"bad_shape_mismatch", {"16 bytes", "0 to 24"}},
      {"bad_shape_overflow", {"exceeds"}},
      {"bad_metadata_not_string", {"__metadata__", "string"}},
      {"bad_metadata_not_object", {"__metadata__", "array"}},
      {"bad_negative_dim", {"\"a\"", "negative", "-2"}},
      {"bad_fractional_dim", {"\"a\"", "2.5"}},
      {"bad_no_brace", {"begin with {"}},
      {"bad_not_object", {"begin with {"}},
      {"bad_not_json", {"not JSON"}},
      {"bad_not_utf8", {"UTF-8"}},
      {"bad_trailing_garbage", {"after the last tensor"}},
      {"bad_missing_shape", {"\"a\"", "shape is missing"}},
      {"bad_one_offset", {"\"a\"", "two data_offsets", "got 1"}},
  };
  for (const auto& [name, parts] : reasons) {
    const auto path = spillway::test::data("safetensors-hostile") / (std::string(name) + ".safetensors");
    const std::string text = error_of(ErrorCode::data, [&] { SafetensorsReader reader(path); });
    for (const char* part : parts) EXPECT_THAT(text, HasSubstr(part)) << name;
  }
}

TEST(SafetensorsReader, TheModelsOfTheFixtures) {
  const SafetensorsReader llama(spillway::test::data("llama-tiny/model.safetensors"));
  const TensorInfo* down = llama.find("model.layers.0.mlp.down_proj.weight");
  ASSERT_NE(down, nullptr);
  EXPECT_EQ(down->shape, (Shape{32, 80}));
  EXPECT_EQ(down->dtype, DType::f32);
  EXPECT_EQ(llama.metadata().at("format"), "pt");
  EXPECT_EQ(llama.find("no such tensor"), nullptr);
  i64 at = 0;
  for (const TensorInfo& t : llama.tensors()) {
    EXPECT_EQ(t.begin, at);
    at = t.end;
  }
  const SafetensorsReader reference(spillway::test::data("llama-tiny/reference.safetensors"));
  float loss = 0;
  reference.read(*reference.find("loss"), 0, std::as_writable_bytes(std::span(&loss, 1)));
  EXPECT_NEAR(loss, std::log(97.0), 1.0);  // an untrained model with 97 tokens has about this loss
}

std::vector<TensorInfo> all_types() {
  std::vector<TensorInfo> tensors;
  const std::pair<DType, const char*> types[] = {{DType::f32, "F32"},  {DType::f64, "F64"},     {DType::bf16, "BF16"},
                                                 {DType::f16, "F16"},  {DType::int32, "I32"},   {DType::int64, "I64"},
                                                 {DType::uint8, "U8"}, {DType::boolean, "BOOL"}};
  for (const auto& [dtype, name] : types) tensors.push_back({.name = name, .dtype = dtype, .shape = {3, 5}});
  tensors.push_back({.name = "scalar", .dtype = DType::f64, .shape = {}});
  tensors.push_back({.name = "nothing", .dtype = DType::f32, .shape = {4, 0, 2}});
  tensors.push_back({.name = "näme \"quoted\"\\\n", .dtype = DType::uint8, .shape = {1}});
  return tensors;
}

void write_pattern(const std::filesystem::path& path) {
  SafetensorsWriter writer(path, all_types(), {{"step", "100"}, {"a \"b\"", "c\n"}});
  std::vector<TensorInfo> tensors = writer.tensors();
  std::reverse(tensors.begin(), tensors.end());  // the tensors are written in reverse order
  u8 next = 0;
  for (const TensorInfo& t : tensors) {
    for (i64 i = t.bytes(); i-- > 0;) {
      const auto byte = static_cast<std::byte>(next++);
      writer.write(t, i, {&byte, 1});
    }
  }
  writer.finish();
}

TEST(SafetensorsWriter, RoundTripOfEveryDType) {
  const TemporaryFolder folder;
  write_pattern(folder / "a");
  write_pattern(folder / "b");
  EXPECT_EQ(bytes_of(folder / "a"), bytes_of(folder / "b"));
  const SafetensorsReader reader(folder / "a");
  EXPECT_EQ(reader.metadata(), (std::map<std::string, std::string>{{"step", "100"}, {"a \"b\"", "c\n"}}));
  const auto wanted = all_types();
  ASSERT_EQ(reader.tensors().size(), wanted.size());
  u8 next = 0;
  for (size_t i = wanted.size(); i-- > 0;) {
    const TensorInfo* t = reader.find(wanted[i].name);
    ASSERT_NE(t, nullptr) << wanted[i].name;
    EXPECT_EQ(t->dtype, wanted[i].dtype);
    EXPECT_EQ(t->shape, wanted[i].shape);
    const auto bytes = read_all(reader, t->name);
    for (size_t b = bytes.size(); b-- > 0;) EXPECT_EQ(std::to_integer<u8>(bytes[b]), next++);
  }
}

TEST(SafetensorsWriter, TheBytesAreThoseOfTheFormat) {
  const TemporaryFolder folder;
  {
    SafetensorsWriter writer(folder / "a", {{.name = "a", .dtype = DType::f32, .shape = {2, 3}}});
    const std::vector<float> values = {1, 2, 3, 4, 5, 6};
    writer.write(writer.tensors()[0], 0, std::as_bytes(std::span(values)));
    writer.finish();
  }
  const std::string header = R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})";
  const std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
  EXPECT_EQ(bytes_of(folder / "a"), with_length(padded, raw<float>({1, 2, 3, 4, 5, 6})));
}

TEST(SafetensorsWriter, UnfinishedFilesVanishAndMissingBytesAreNoticed) {
  const TemporaryFolder folder;
  {
    SafetensorsWriter writer(folder / "a", {{.name = "a", .dtype = DType::f32, .shape = {2}}});
    const std::byte some[4] = {};
    writer.write(writer.tensors()[0], 0, some);
    EXPECT_THAT(error_of(ErrorCode::bug, [&] { writer.finish(); }), HasSubstr("expected 8 bytes"));
    EXPECT_TRUE(std::filesystem::exists(folder / "a"));
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "a"));
}

TEST(SafetensorsWriter, WrongUseIsABug) {
  const TemporaryFolder folder;
  const TensorInfo a{.name = "a", .dtype = DType::f32, .shape = {2}};
  error_of(ErrorCode::bug, [&] { SafetensorsWriter(folder / "a", {a, a}); });
  error_of(ErrorCode::bug, [&] { SafetensorsWriter(folder / "a", {{.name = "__metadata__"}}); });
  error_of(ErrorCode::bug, [&] { SafetensorsWriter(folder / "a", {{.name = "\xff"}}); });
  EXPECT_FALSE(std::filesystem::exists(folder / "a"));
  EXPECT_THAT(error_of(ErrorCode::io, [&] { SafetensorsWriter(folder / "no folder" / "a", {a}); }), HasSubstr("errno 2"));
  SafetensorsWriter writer(folder / "a", {a});
  const std::byte bytes[12] = {};
  error_of(ErrorCode::bug, [&] { writer.write(writer.tensors()[0], 0, bytes); });
  error_of(ErrorCode::bug, [&] { writer.write(writer.tensors()[0], -4, {bytes, 4}); });
}

TEST(SafetensorsReader, ReadsInPiecesFromManyThreads) {
  const TemporaryFolder folder;
  std::vector<u8> values(100000);
  std::iota(values.begin(), values.end(), u8{0});
  {
    SafetensorsWriter writer(folder / "a", {{.name = "a", .dtype = DType::uint8, .shape = {100000}}});
    writer.write(writer.tensors()[0], 0, std::as_bytes(std::span(values)));
    writer.finish();
  }
  const SafetensorsReader reader(folder / "a");
  std::vector<std::thread> threads;
  for (i64 t = 0; t < 4; ++t) {
    threads.emplace_back([&reader, &values, t] {
      std::vector<std::byte> piece(977);
      for (i64 at = t * 31; at + 977 <= 100000; at += 4 * 977) {
        reader.read(reader.tensors()[0], at, piece);
        EXPECT_EQ(std::memcmp(piece.data(), values.data() + at, piece.size()), 0);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  std::byte byte;
  error_of(ErrorCode::bug, [&] { reader.read(reader.tensors()[0], 100000, {&byte, 1}); });
}

// Writes more data than stays in the page cache, in pieces, in random order, from two threads. No piece may get lost.
TEST(SafetensorsWriter, WritesBehindWithoutLosingAPiece) {
  const TemporaryFolder folder;
  constexpr i64 kElems = 12 << 20, kPiece = 77'777;
  std::vector<u32> values(kElems);
  std::iota(values.begin(), values.end(), 5u);
  std::vector<i64> begins;
  for (i64 at = 0; at < kElems; at += kPiece) begins.push_back(at);
  std::shuffle(begins.begin() + 30, begins.end(), std::mt19937(3));  // the first pieces stay in order, so that some are adjacent
  {
    SafetensorsWriter writer(folder / "a", {{.name = "a", .dtype = DType::int32, .shape = {kElems}}});
    const auto write = [&](size_t first) {
      for (size_t i = first; i < begins.size(); i += 2) {
        const i64 count = std::min(kPiece, kElems - begins[i]);
        writer.write(writer.tensors()[0], 4 * begins[i],
                     std::as_bytes(std::span(values).subspan(static_cast<size_t>(begins[i]), static_cast<size_t>(count))));
      }
    };
    std::thread other(write, 1);
    write(0);
    other.join();
    writer.finish();
  }
  const SafetensorsReader reader(folder / "a");
  const std::vector<std::byte> back = read_all(reader, "a");
  ASSERT_EQ(back.size(), 4 * values.size());
  EXPECT_EQ(std::memcmp(back.data(), values.data(), back.size()), 0);
}

TEST(SafetensorsReader, OffsetsBeyond4GiB) {
  const TemporaryFolder folder;
  const i64 rows = i64{3} << 30;  // tensor "a" has 6 GiB, of which little is written
  const std::vector<i32> values = {7, 8, 9};
  const u16 last = 0x4321;
  std::optional<SafetensorsWriter> writer;  // the writer's destructor removes the unfinished file
  try {
    writer.emplace(folder / "big", std::vector<TensorInfo>{{.name = "a", .dtype = DType::bf16, .shape = {rows}},
                                                           {.name = "b", .dtype = DType::int32, .shape = {3}}});
    writer->write(writer->tensors()[1], 0, std::as_bytes(std::span(values)));
    writer->write(writer->tensors()[0], 2 * rows - 2, std::as_bytes(std::span(&last, 1)));
  } catch (const Error& e) {
    GTEST_SKIP() << "this filesystem takes no file of 6 GiB: " << e.what();
  }
  const SafetensorsReader reader(folder / "big");  // the file has its final size from the start
  EXPECT_EQ(reader.find("b")->begin, 2 * rows);
  std::vector<i32> back(2);
  reader.read(*reader.find("b"), 4, std::as_writable_bytes(std::span(back)));
  EXPECT_EQ(back, (std::vector<i32>{8, 9}));
  u16 end = 0;
  reader.read(*reader.find("a"), 2 * rows - 2, std::as_writable_bytes(std::span(&end, 1)));
  EXPECT_EQ(end, last);
  reader.read(*reader.find("a"), (i64{1} << 32) + 2, std::as_writable_bytes(std::span(&end, 1)));
  EXPECT_EQ(end, 0);
}

// Tensors of types that Spillway does not support are listed, and their bytes can be read. Reading them as numbers is refused.
TEST(SafetensorsReader, TypesAndRanksThatAreNotOursAreNamed) {
  const TemporaryFolder folder;
  const std::tuple<const char*, const char*, int> types[] = {{"I8", "1", 1},           {"U16", "1", 2},     {"I16", "2,3", 12},
                                                             {"U32", "1", 4},          {"U64", "1", 8},     {"C64", "1", 8},
                                                             {"F8_E4M3", "1", 1},      {"F8_E5M2", "1", 1}, {"F8_E8M0", "1", 1},
                                                             {"F6_E2M3", "4", 3},      {"F4", "2,3", 3},    {"F32", "1,1,1,1,1,1,2", 8},
                                                             {"F8_E4M3FNUZ", "0,5", 0}};
  for (const auto& [name, shape, bytes] : types) {
    const std::string header = std::string(R"({"the one":{"dtype":")") + name + R"(","shape":[)" + shape + R"(],"data_offsets":[0,)" +
                               std::to_string(bytes) + R"(]},"ours":{"dtype":"F32","shape":[1],"data_offsets":[)" + std::to_string(bytes) +
                               "," + std::to_string(bytes + 4) + "]}}";
    put(folder / "a", with_length(header, std::string(static_cast<size_t>(bytes) + 4, 'x')));
    const SafetensorsReader reader(folder / "a");
    ASSERT_NE(reader.find("the one"), nullptr);
    EXPECT_THAT(reader.find("the one")->foreign, testing::StartsWith(std::string(name) + " ["));
    EXPECT_EQ(reader.find("the one")->bytes(), bytes);
    EXPECT_EQ(reader.find("ours")->foreign, "");
    EXPECT_EQ(std::ssize(read_all(reader, "the one")), bytes);
  }
}

TEST(SafetensorsReader, BoundsOfTheHeader) {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& header, const char* why) {
    put(folder / "a", with_length(header));
    EXPECT_THAT(error_of(ErrorCode::data, [&] { SafetensorsReader reader(folder / "a"); }), HasSubstr(why)) << header.substr(0, 80);
  };
  std::string extents = "1";
  for (int k = 0; k < 64; ++k) extents += ",1";
  refused(R"({"a":{"dtype":"F32","shape":[)" + extents + R"(],"data_offsets":[0,4]}})", "at most 64 extents");
  refused(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", "whole number of bytes");
  refused(R"({"a":{"dtype":"I16","shape":[3],"data_offsets":[0,4]}})", "expected 6 bytes of data for I16 [3]");
  refused(R"({"a":{"dtype":"F32","shape":[1099511627776,1099511627776,0],"data_offsets":[0,0]}})", "exceeds");
  // The bytes of these shapes fit into 64 bits, but their numbers of elements do not fit into a Shape.
  refused(R"({"a":{"dtype":"U8","shape":[1152921504606846975,0],"data_offsets":[0,0]}})", "exceeds");
  refused(R"({"a":{"dtype":"F4","shape":[2305843009213693951,0],"data_offsets":[0,0]}})", "exceeds");
  refused(R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})", "too large");
  refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551616]}})", "the number");
  refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}})", "got more");
  refused(R"({"a":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})", "got an array");
  refused(R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0],"dtype":"F64"}})", "twice");
  refused(R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0],"scale":1}})", "the field \"scale\"");
  refused(R"({"a":3})", "tensor \"a\"");
  refused(R"({"a":null})", "got null");
  refused(R"({} x)", "not JSON");
  refused(R"({"__metadata__":{"a":"b","a":"c"}})", "twice");
  refused(R"({"\u001b[2Jevil":3})", "\\x1b[2Jevil");               // messages show escape codes as visible text
  refused("{\"a\":" + std::string(1 << 20, '['), "got an array");  // deep nesting is refused before memory is taken for each level
  refused("{\"a\":" + std::string(1 << 20, '{'), "not JSON");
}

TEST(SafetensorsReader, WhatIsNoFileIsSaidSo) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_of(ErrorCode::data, [&] { SafetensorsReader reader(folder / "missing"); }), HasSubstr("missing"));
  EXPECT_THAT(error_of(ErrorCode::data, [&] { SafetensorsReader reader(folder.path()); }), HasSubstr("folder"));
  EXPECT_THAT(error_of(ErrorCode::data, [&] { SafetensorsReader reader("/dev/zero"); }), HasSubstr("device"));
}

TEST(SafetensorsReader, AFileShortenedAfterOpeningIsAnErrorNotACrash) {
  const TemporaryFolder folder;
  write_pattern(folder / "a");
  const SafetensorsReader reader(folder / "a");
  std::filesystem::resize_file(folder / "a", 700);
  EXPECT_THAT(error_of(ErrorCode::io,
                       [&] {
                         for (const TensorInfo& t : reader.tensors()) read_all(reader, t.name);
                       }),
              HasSubstr("shortened"));
}

// Changes a small valid file by flipped, inserted and missing bytes, with a fixed seed. Every result opens or gives Error(data).
TEST(SafetensorsFuzz, MutationsOpenOrAreRefused) {
  const TemporaryFolder folder;
  write_pattern(folder / "seed");
  const std::string seeds[] = {
      bytes_of(folder / "seed"),
      with_length(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"__metadata__":{"k":"v"}})", "12345678"),
      with_length(R"({"b":{"data_offsets":[2,6],"shape":[1,1],"dtype":"I32"},"a":{"dtype":"F16","shape":[],"data_offsets":[0,2]}})",
                  "123456")};
  std::mt19937 random(20240);
  int opened = 0, refused = 0;
  for (int round = 0; round < 6000; ++round) {
    std::string bytes = seeds[static_cast<size_t>(round) % std::size(seeds)];
    const std::string alphabet = "0123456789{}[]\",:-.eE \\u\xff";
    for (u32 edits = 1 + random() % 3; edits-- > 0 && !bytes.empty();) {
      const size_t at = random() % (random() % 2 ? bytes.size() : std::min<size_t>(bytes.size(), 90));
      switch (random() % 5) {
        case 0:
          bytes[at] = static_cast<char>(bytes[at] ^ 1 << random() % 8);
          break;
        case 1:
          bytes[at] = alphabet[random() % alphabet.size()];
          break;
        case 2:
          bytes.resize(at);
          break;
        case 3:
          bytes.insert(at, 1, alphabet[random() % alphabet.size()]);
          break;
        default:
          bytes.erase(at, 1 + random() % 4);
      }
    }
    std::filesystem::remove(folder / "a");  // removing is faster, since ext4 flushes a file that is truncated and rewritten
    put(folder / "a", bytes);
    try {
      const SafetensorsReader reader(folder / "a");
      for (const TensorInfo& t : reader.tensors()) read_all(reader, t.name);
      ++opened;
    } catch (const Error& e) {
      ASSERT_EQ(e.code(), ErrorCode::data) << e.what();
      ++refused;
    }
  }
  EXPECT_GT(opened, 100);  // many changed files still open, because data bytes and names may have any value
  EXPECT_GT(refused, 3000);
}

}  // namespace
}  // namespace spillway::data::safetensors_test
