#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <thread>

#include "data/loader/loader.h"
#include "data/tokens/token_file.h"
#include "tests/data/support_files.h"
#include "tests/support/file_limit.h"

namespace spillway::data::token_source_test {
namespace {

using spillway::test::bytes_of;
using spillway::test::error_of;
using spillway::test::put;
using spillway::test::raw;
using spillway::test::TemporaryFolder;
using testing::AnyOf;
using testing::HasSubstr;

std::unique_ptr<TokenSource> open(const std::filesystem::path& path, i64 vocabulary = 50257) {
  auto sources = open_token_sources({path.string()}, vocabulary);
  EXPECT_EQ(sources.size(), 1u);
  return std::move(sources[0]);
}

std::vector<i32> all(const TokenSource& source) {
  std::vector<i32> ids(static_cast<size_t>(source.tokens()));
  source.read(0, ids);
  return ids;
}

std::string refused(const std::filesystem::path& path, ErrorCode code = ErrorCode::data, i64 vocabulary = 50257) {
  return error_of(code, [&] { open_token_sources({path.string()}, vocabulary); });
}

// Expects every range of tokens of a source to equal the range of `wanted` at the same place.
void expect_every_range(const TokenSource& source, const std::vector<i32>& wanted) {
  ASSERT_EQ(source.tokens(), static_cast<i64>(wanted.size()));
  for (size_t begin = 0; begin <= wanted.size(); ++begin) {
    for (size_t end = begin; end <= wanted.size(); ++end) {
      std::vector<i32> ids(end - begin, -1);
      source.read(static_cast<i64>(begin), ids);
      ASSERT_TRUE(std::equal(ids.begin(), ids.end(), wanted.begin() + static_cast<std::ptrdiff_t>(begin))) << begin << " " << end;
    }
  }
}

TEST(TextSource, BytesOfAFile) {
  const TemporaryFolder folder;
  const auto source = open(put(folder / "a.txt", "In the\xff\n"));
  EXPECT_EQ(all(*source), (std::vector<i32>{'I', 'n', ' ', 't', 'h', 'e', 255, '\n'}));
  EXPECT_THAT(source->name(), HasSubstr("a.txt"));
}

TEST(TextSource, AFolderIsJoinedInByteOrderOfNames) {
  const TemporaryFolder folder;
  put(folder / "b.txt", "second");
  put(folder / "a.txt", "first ");
  put(folder / "B.txt", "zeroth ");  // files are read in byte order of their names, so upper case comes first
  put(folder / "c.txt", "");
  put(folder / "d.txt", "\xc3\xa4!");
  put(folder / "notes.md", "not this");
  std::filesystem::create_directory(folder / "e.txt");
  const std::string joined = "zeroth first second\xc3\xa4!";
  std::vector<i32> wanted;
  for (const char c : joined) wanted.push_back(static_cast<unsigned char>(c));
  expect_every_range(*open(folder.path()), wanted);
}

TEST(TextSource, AFolderOfMoreFilesThanMayBeOpen) {
  const TemporaryFolder folder;
  std::vector<i32> wanted;
  for (int i = 0; i < 400; ++i) {
    put(folder / (std::to_string(1000 + i) + ".txt"), std::string(static_cast<size_t>(i % 3), static_cast<char>(i)));
    for (int n = 0; n < i % 3; ++n) wanted.push_back(i & 255);
  }
  EXPECT_EQ(all(*open(folder.path())), wanted);
}

TEST(TextSource, ASmallVocabularyIsCheckedOnOpening) {
  const TemporaryFolder folder;
  put(folder / "a.txt", std::string(100000, 'a') + "z");
  EXPECT_NO_THROW(open(folder / "a.txt", 'z' + 1));
  const std::string text = refused(folder / "a.txt", ErrorCode::data, 'z');
  EXPECT_THAT(text, HasSubstr("a.txt"));
  EXPECT_THAT(text, HasSubstr("122 at token 100000 (byte 100000)"));
}

TEST(BinSource, NanoGpt) {
  const TemporaryFolder folder;
  put(folder / "a.bin", raw<u16>({1, 2, 50256, 0, 7}));
  expect_every_range(*open(folder / "a.bin"), {1, 2, 50256, 0, 7});
  put(folder / "odd.bin", "abc");
  EXPECT_THAT(refused(folder / "odd.bin"), HasSubstr("odd number of bytes: 3"));
  put(folder / "large.bin", raw<u16>({1, 2, 50257, 0}));
  EXPECT_THAT(refused(folder / "large.bin"), HasSubstr("got 50257 at token 2 (byte 4)"));
  EXPECT_NO_THROW(open(folder / "large.bin", 65536));
  EXPECT_EQ(open(put(folder / "empty.bin", ""))->tokens(), 0);
}

std::string llmc(u32 magic, u32 version, u32 tokens, const std::string& body) {
  std::vector<u32> header(256, 0);
  header[0] = magic, header[1] = version, header[2] = tokens;
  return raw(header) + body;
}

TEST(BinSource, LlmC) {
  const TemporaryFolder folder;
  put(folder / "two.bin", llmc(20240520, 1, 3, raw<u16>({5, 6, 50256})));
  expect_every_range(*open(folder / "two.bin"), {5, 6, 50256});
  put(folder / "four.bin", llmc(20240801, 7, 2, raw<u32>({128000, 9})));
  expect_every_range(*open(folder / "four.bin", 128256), {128000, 9});
  EXPECT_THAT(refused(folder / "four.bin", ErrorCode::data, 128000), HasSubstr("got 128000 at token 0 (byte 1024)"));
  put(folder / "huge.bin", llmc(20240801, 7, 1, raw<u32>({0xffffffff})));
  EXPECT_THAT(refused(folder / "huge.bin"), HasSubstr("got 4294967295"));
}

TEST(BinSource, LlmCHeadersThatLie) {
  const TemporaryFolder folder;
  EXPECT_THAT(refused(put(folder / "a.bin", llmc(20240520, 2, 1, raw<u16>({5})))),
              HasSubstr("expected version 1 of llm.c's format, got 2"));
  EXPECT_THAT(refused(put(folder / "b.bin", llmc(20240520, 1, 4, raw<u16>({5})))), HasSubstr("4 tokens"));
  EXPECT_THAT(refused(put(folder / "c.bin", llmc(20240520, 1, 1, raw<u16>({5, 6})))), HasSubstr("1 tokens"));
  EXPECT_THAT(refused(put(folder / "d.bin", llmc(20240520, 1, 1, "abc"))), HasSubstr("3 bytes follow"));
  EXPECT_THAT(refused(put(folder / "e.bin", llmc(20240520, 1, 1, "").substr(0, 600))), HasSubstr("only 600 bytes"));
  EXPECT_THAT(refused(put(folder / "f.bin", llmc(20240801, 7, 0xffffffff, raw<u32>({5})))), HasSubstr("4294967295 tokens"));
}

struct Megatron {
  std::string magic = std::string("MMIDIDX\0\0", 9);
  u64 version = 1;
  u8 code = 8;
  std::vector<i32> sizes = {2, 0, 3};
  std::vector<i64> pointers = {0, 4, 4};
  std::vector<i64> documents = {0, 2, 3};
  std::string index() const {
    return magic + raw<u64>({version}) + std::string(1, static_cast<char>(code)) + raw<u64>({sizes.size(), documents.size()}) + raw(sizes) +
           raw(pointers) + raw(documents);
  }
};

TEST(BinSource, MegatronOfEveryIntegerType) {
  const TemporaryFolder folder;
  const auto check = [&](const Megatron& m, const std::string& body) {
    put(folder / "a.idx", m.index());
    expect_every_range(*open(put(folder / "a.bin", body)), {1, 2, 3, 4, 5});
  };
  check({}, raw<u16>({1, 2, 3, 4, 5}));
  check({.code = 1, .pointers = {0, 2, 2}}, raw<u8>({1, 2, 3, 4, 5}));
  check({.code = 3}, raw<std::int16_t>({1, 2, 3, 4, 5}));
  check({.code = 4, .pointers = {0, 8, 8}}, raw<i32>({1, 2, 3, 4, 5}));
  check({.code = 5, .pointers = {0, 16, 16}}, raw<i64>({1, 2, 3, 4, 5}));
}

TEST(BinSource, MegatronIndexesThatLie) {
  const TemporaryFolder folder;
  const std::string body = raw<u16>({1, 2, 3, 4, 5});
  const auto check = [&](const std::string& index, const std::string& bin, const char* why) {
    put(folder / "a.idx", index);
    EXPECT_THAT(refused(put(folder / "a.bin", bin)), HasSubstr(why));
  };
  check(Megatron{.magic = "TNTIDX\0\0\0"}.index(), body, "not a Megatron index");
  check(Megatron{.version = 2}.index(), body, "expected version 1 of Megatron's index format, got 2");
  check(Megatron{.code = 7}.index(), body, "dtype code 7");
  check(Megatron{.sizes = {2, -1, 4}}.index(), body, "negative size");
  check(Megatron{.pointers = {0, 6, 4}}.index(), body, "begins at byte 6, expected 4");
  check(Megatron{}.index(), body + "xx", "5 tokens of 2 bytes");
  check(Megatron{}.index(), body + "x", "5 tokens of 2 bytes");
  check(Megatron{}.index(), body.substr(2), "the 4 tokens");
  check(Megatron{}.index() + "x", body, "documents do not");
  check(Megatron{}.index().substr(0, 20), body, "too few");
  std::string counts = Megatron{}.index();
  counts.replace(18, 8, raw<u64>({std::numeric_limits<u64>::max() / 12 + 1}));
  check(counts, body, "documents do not");
  check(Megatron{.code = 3}.index(), raw<std::int16_t>({1, 2, -3, 4, 5}), "got -3 at token 2");
}

TEST(TokenSources, PathsThatAreNotTheirs) {
  const TemporaryFolder folder;
  EXPECT_THAT(refused(folder / "missing.txt"), HasSubstr("missing.txt"));
  EXPECT_THAT(refused(put(folder / "a.txt.gz", "x"), ErrorCode::usage), HasSubstr("gunzip"));
  EXPECT_THAT(refused(put(folder / "a.text", "x"), ErrorCode::usage), HasSubstr("spillway tokenize"));
  for (const char* name : {"a.json", "a.json.gz", "a.parquet", "a.csv"})
    EXPECT_THAT(refused(put(folder / name, "x"), ErrorCode::usage), AnyOf(HasSubstr("a.jsonl"), HasSubstr("FILE.jsonl"))) << name;
  EXPECT_THAT(refused(put(folder / "a.idx", "x"), ErrorCode::usage), HasSubstr(".bin file"));
  std::filesystem::create_directory(folder / "none");
  EXPECT_THAT(refused(folder / "none", ErrorCode::usage), HasSubstr("found none"));
  put(folder / "a.txt", "x");
  EXPECT_THAT(refused(folder / "a.txt", ErrorCode::usage, 0), HasSubstr("vocabulary"));
  ASSERT_EQ(::mkfifo((folder / "pipe.txt").c_str(), 0600), 0);
  EXPECT_THAT(refused(folder / "pipe.txt"), HasSubstr("pipe"));  // the named pipe is refused; opening it would block
}

TEST(TokenSources, AreThreadSafeAndRefuseWhatIsOutside) {
  const TemporaryFolder folder;
  std::vector<u16> values(100000);
  std::iota(values.begin(), values.end(), u16{0});
  const auto source = open(put(folder / "a.bin", raw(values)), 65536);
  std::vector<std::thread> threads;
  for (i64 t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::vector<i32> ids(20001);
      for (i64 begin = t; begin + 20001 <= 100000; begin += 7919) {
        source->read(begin, ids);
        for (size_t i = 0; i < ids.size(); ++i) ASSERT_EQ(ids[i], values[static_cast<size_t>(begin) + i]);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  std::vector<i32> two(2);
  error_of(ErrorCode::bug, [&] { source->read(99999, two); });
  error_of(ErrorCode::bug, [&] { source->read(-1, two); });
}

TEST(TokenSources, BeyondTwoGiga) {
  const TemporaryFolder folder;
  const i64 tokens = (i64{1} << 32) + 5;  // the number of tokens, which exceeds 32 bits; the file is sparse and has 8 GiB
  put(folder / "a.bin", "");
  std::error_code error;
  std::filesystem::resize_file(folder / "a.bin", static_cast<u64>(tokens) * 2, error);
  if (error) GTEST_SKIP() << "this filesystem takes no sparse file of 8 GiB: " << error.message();
  {
    std::fstream file(folder / "a.bin", std::ios::binary | std::ios::in | std::ios::out);
    file << raw<u16>({10});  // the first token is not zero, since a file that begins with a kilobyte of zeros counts as unfinished
    file.seekp((tokens - 2) * 2);
    file << raw<u16>({11, 12});
  }
  const auto source = open(folder / "a.bin", 65536);
  EXPECT_EQ(source->tokens(), tokens);
  std::vector<i32> end(3);
  source->read(tokens - 3, end);
  EXPECT_EQ(end, (std::vector<i32>{0, 11, 12}));
}

TEST(TokenFileWriter, WritesWhatIsRead) {
  const TemporaryFolder folder;
  std::vector<i32> ids(100001);
  std::mt19937 random(3);
  for (i32& id : ids) id = static_cast<i32>(random() % 50257);
  for (const i64 vocabulary : {50257, 65536, 65537, 128256}) {
    TokenFileWriter writer(folder / "a.bin", vocabulary);
    writer.write(std::span(ids).first(7));
    writer.write(std::span(ids).subspan(7));
    writer.finish();
    EXPECT_EQ(writer.width_bytes(), vocabulary > 65536 ? 4 : 2);
    EXPECT_EQ(std::filesystem::file_size(folder / "a.bin"), 1024 + ids.size() * static_cast<size_t>(writer.width_bytes()));
    EXPECT_EQ(all(*open(folder / "a.bin", vocabulary)), ids);
  }
}

TEST(TokenFileWriter, TheBytesAreThoseOfLlmC) {
  const TemporaryFolder folder;
  {
    TokenFileWriter writer(folder / "a.bin", 50257);
    writer.write(std::vector<i32>{5, 6, 50256});
    writer.finish();
    TokenFileWriter wide(folder / "b.bin", 128256);
    wide.write(std::vector<i32>{128000});
    wide.finish();
  }
  EXPECT_EQ(bytes_of(folder / "a.bin"), llmc(20240520, 1, 3, raw<u16>({5, 6, 50256})));
  EXPECT_EQ(bytes_of(folder / "b.bin"), llmc(20240801, 7, 1, raw<u32>({128000})));
}

TEST(TokenFileWriter, WrongIdsAndUnfinishedFiles) {
  const TemporaryFolder folder;
  {
    TokenFileWriter writer(folder / "a.bin", 100);
    writer.write(std::vector<i32>(70000, 1));
    EXPECT_THAT(error_of(ErrorCode::data, [&] { writer.write(std::vector<i32>{3, 100}); }), HasSubstr("got 100 at token 70001"));
    EXPECT_FALSE(std::filesystem::exists(folder / "a.bin"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  {
    TokenFileWriter writer(folder / "full.bin", 100);
    const test::FileLimit full(1000);
    error_of(ErrorCode::io, [&] { writer.write(std::vector<i32>(70000, 1)); });
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(TokenFileWriter, ReplacesAnOlderTokenFileAndNothingElse) {
  const TemporaryFolder folder;
  const auto write = [&](i32 id) {
    TokenFileWriter writer(folder / "a.bin", 100);
    writer.write(std::vector<i32>{id});
    writer.finish();
    return bytes_of(folder / "a.bin");
  };
  const std::string one = write(1), two = write(2);
  EXPECT_NE(one, two);
  put(folder / "a.bin", "chapter one");
  EXPECT_THAT(error_of(ErrorCode::usage, [&] { write(3); }), HasSubstr("give another name"));
  EXPECT_EQ(bytes_of(folder / "a.bin"), "chapter one");
}

// Earlier versions of the program left a header of zeros when they were killed, so such a file
// is refused. A headerless file of tokens practically never begins with 512 times the token 0.
TEST(TokenSource, AHeaderOfZerosIsNoToken) {
  const TemporaryFolder folder;
  put(folder / "a.bin", std::string(1024, '\0') + raw<u16>({5, 6, 7}));
  EXPECT_THAT(error_of(ErrorCode::data, [&] { open_token_sources({folder / "a.bin"}, 100); }), HasSubstr("was interrupted"));
  put(folder / "a.bin", std::string(1000, '\0') + raw<u16>(std::vector<u16>(20, 7)));
  EXPECT_EQ(open_token_sources({folder / "a.bin"}, 100)[0]->tokens(), 520);
}

}  // namespace
}  // namespace spillway::data::token_source_test
