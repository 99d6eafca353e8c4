// Implements `spillway chat`, a conversation in the terminal through the model's chat
// template. It runs on one rank, since other ranks would time out while the user thinks.
#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "app/commands/commands.h"
#include "app/ranks/rank_console.h"
#include "base/error.h"
#include "trainer/ranks/device_choice.h"
#include "trainer/ranks/rank_report.h"
#include "trainer/run/prompts.h"
#include "trainer/run/writer.h"

namespace spillway::app {
namespace {

using Json = nlohmann::ordered_json;

// Returns the next line that is not empty. Returns nothing at the end of input or if the line is /exit.
std::optional<std::string> next_line(Console& console, std::istream& in) {
  console.stream("> ");
  for (std::string line; std::getline(in, line);) {
    if (line == "/exit") break;
    if (!line.empty()) return line;
  }
  return {};
}

int chat(const ChatConfig& config, Console& console, const Peers& peers) {
  std::optional<Writer> writer;
  std::optional<Conversations> conversations;
  peers.together([&] {
    writer.emplace(Command::chat, config, peers);
    conversations.emplace(config, writer->source(), writer->shared_tokenizer());
  });
  const i64 positions = std::min(config.context, writer->source().config.positions);
  writer->open(config, {}, 1, text_lengths(positions - 1, config.max_tokens, positions), console);
  report_phase(RankPhase::generating);
  console.log("type /new to start a new conversation, /exit or Ctrl-D to quit");
  const Json begin = config.system ? Json{{{"role", "system"}, {"content", *config.system}}} : Json::array();
  Json messages = begin;
  while (const auto line = next_line(console, std::cin)) {
    if (*line == "/new") {
      messages = begin;
      continue;
    }
    messages.push_back({{"role", "user"}, {"content", *line}});
    std::vector<i32> tokens;
    try {
      tokens = conversations->tokens(messages);
      check_prompt(tokens, writer->source().config.vocabulary);
    } catch (const Error& e) {  // the template may refuse the message; the conversation then stays as it was
      console.warn(e.what());
      messages.erase(messages.size() - 1);
      continue;
    }
    if (std::ssize(tokens) >= positions)
      console.warn(
          fmt::format("the conversation has {} tokens, but the model sees only the last {}: it "
                      "no longer sees the beginning; /new starts a new conversation",
                      tokens.size(), positions));
    const auto answers = writer->write({tokens}, 0, [&](size_t, const std::string& piece) { console.stream(piece); });
    console.stream("\n");
    messages.push_back({{"role", "assistant"}, {"content", answers.front().text}});
  }
  console.stream("\n");
  return 0;
}

}  // namespace

int run_chat(const ChatConfig& given, Console& console, const Peers& peers) {
  ChatConfig config = given;
  config.ranks = peers.ranks();
  resolve_device(config, look_at_gpus(config, peers.place().local_rank));
  return run_on_ranks(peers, console, [&](Console& own) { return chat(config, own, peers); });
}

}  // namespace spillway::app
