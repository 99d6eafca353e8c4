// Runs a hundred wrong command lines, as users of PyTorch, Hugging Face, DeepSpeed, llm.c and torchrun type them. Each must end with the
// right status, name what is wrong and what to write instead, and leave nothing behind.
#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
#include <set>
#include <sstream>

#include "tests/app/support_app.h"

namespace spillway::app::wrong_lines_test {
namespace {

namespace fs = std::filesystem;

// @/ stands for the folder of the test, TRAIN for a training that is right up to there. Each text in `said` must be in the message; a
// text after an exclamation mark must not be.
struct Line {
  const char* words;
  int status;
  std::vector<std::string> said;
};

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  for (size_t at = 0; (at = text.find(what, at)) != text.npos; at += with.size()) text.replace(at, what.size(), with);
  return text;
}

class WrongLines : public ::testing::Test {
 protected:
  WrongLines() {
    std::string text;
    for (int i = 0; i < 100; ++i) text += "the quick brown fox jumps over the lazy dog\n";
    folder_.write("t.txt", text);
  }

  std::set<std::string> names() const {
    std::set<std::string> all;
    for (const auto& entry : fs::recursive_directory_iterator(folder_.path())) all.insert(entry.path().string());
    return all;
  }

  void expect(const std::vector<Line>& lines) const {
    const std::string at = folder_.path().string();
    for (const Line& line : lines) {
      const std::string shown = replaced(line.words, "TRAIN", "train --model gpt2-tiny --data @/t.txt --steps 2 --device cpu --out @/out");
      std::istringstream words(replaced(shown, "@/", at + "/"));
      const std::set<std::string> before = names();
      const Outcome outcome = run_app({std::istream_iterator<std::string>(words), {}}, FakeHost().host());
      EXPECT_EQ(outcome.status, line.status) << shown << "\n" << outcome.err;
      for (const std::string& piece : line.said) {
        const bool unwanted = piece.starts_with('!');
        EXPECT_NE(outcome.err.find(unwanted ? piece.substr(1) : piece) != std::string::npos, unwanted)
            << shown << "\nexpected " << piece << " in: " << outcome.err;
      }
      for (const std::string& name : names()) {
        // The cache of tokenized text is never half-written, and the next run uses it.
        EXPECT_TRUE(before.contains(name) || name.find("/data-cache") != std::string::npos) << shown << " left " << name;
      }
    }
  }

  const TemporaryFolder folder_;
};

TEST_F(WrongLines, MistypedCommandsFlagsAndPresets) {
  expect({{"trian --model gpt2-tiny", 2, {"mean train?"}},
          {"finetune --model gpt2-tiny", 2, {"is train;"}},
          {"infer --model r --prompt a", 2, {"is generate;"}},
          {"eval --model r", 2, {"mean evaluate?"}},
          {"evalute --model r", 2, {"mean evaluate?"}},
          {"convert r --out x", 2, {"is export;"}},
          {"xyzzy", 2, {"!did you mean", "--help"}},
          {"TRAIN --learning-rat 1e-3", 2, {"[--learning-rat]", "mean --learning-rate?"}},
          {"TRAIN --leraning-rate 1e-3", 2, {"mean --learning-rate?"}},
          {"TRAIN --LR 1e-3", 2, {"--learning-rate"}},
          {"TRAIN --place host", 2, {"--place-parameters, --place-gradients, --place-optimizer or --place-activations?"}},
          {"TRAIN --placeoptimizer host", 2, {"mean --place-optimizer?"}},
          {"TRAIN --check-point-every 10", 2, {"mean --checkpoint-every?"}},
          {"TRAIN -lr 1e-3", 2, {"[-lr]", "--learning-rate"}},
          {"TRAIN -steps 3", 2, {"[-steps]", "write --steps"}},
          {"TRAIN --nesterov True", 2, {"[True]", "--nesterov=false"}},
          {"train gpt2-tiny @/t.txt", 2, {"[gpt2-tiny]", "--model", "--data"}},
          {"generate --model r hello", 2, {"[hello]", "--prompt"}},
          {"tokenize t.txt", 2, {"[t.txt]", "--data"}},
          {"train --model gpt2 --data @/t.txt", 2, {"gpt2-124m, whose", "!mean the preset vgg"}},
          {"train --model gpt2-xl --data @/t.txt", 2, {"gpt2-1.5b, whose"}},
          {"train --model llama3 --data @/t.txt", 2, {"llama3-1b, llama3-8b or llama3-70b, whose"}},
          {"train --model resnet5 --data @/t.txt", 2, {"resnet50, whose"}},
          {"train --model falcon-7b --data @/t.txt", 2, {"falcon-7b", "!did you mean", "download"}},
          {"train --model meta-llama/Llama-3.2-1B --data @/t.txt", 2, {"hf download meta-llama/Llama-3.2-1B"}},
          {"train --model https://huggingface.co/o/m --data @/t.txt", 2, {"hf download o/m"}},
          {"train --model @/t.txt --data @/t.txt", 2, {"which is a file"}},
          {"generate --model nope --prompt a", 2, {"nope", "download"}},
          {"export nope --out @/x", 2, {"nope"}},
          {"schedule --pipeline-schedule 1f2b", 2, {"mean 1f1b?"}},
          {"bench memroy", 2, {"mean memory?"}}});
}

TEST_F(WrongLines, WordsOfOtherProgramsForValues) {
  expect({{"TRAIN --optimizer adamww", 2, {"mean adamw?"}},
          {"TRAIN --optimizer adamw_torch_fused", 2, {"write adamw"}},
          {"TRAIN --optimizer paged_adamw_8bit", 2, {"--moments 8bit", "--place-optimizer host"}},
          {"TRAIN --lr-schedule cosine_with_restarts", 2, {"write cosine"}},
          {"TRAIN --precision bfloat16", 2, {"write bf16"}},
          {"TRAIN --precision 16", 2, {"write fp16"}},
          {"TRAIN --recompute true", 2, {"write block"}},
          {"TRAIN --packing True", 2, {"write on"}},
          {"TRAIN --tensorboard no", 2, {"write off"}},
          {"TRAIN --place-optimizer cpu", 2, {"write host"}},
          {"TRAIN --place-parameters ssd", 2, {"write nvme"}},
          {"train --model gpt2-tiny --data @/t.txt --device gpu", 2, {"write cuda"}},
          {"TRAIN --zero-stage 4", 2, {"0 1 2 3"}},
          {"export r --out @/x --format safetensors", 2, {"write hf"}},
          {"export r --out @/x --dtype float16", 2, {"write fp16"}}});
}

TEST_F(WrongLines, FlagsOfOtherPrograms) {
  expect({{"TRAIN --per_device_train_batch_size 4", 2, {"--micro-batch-size"}},
          {"TRAIN --per_device_eval_batch_size 4", 2, {"--micro-batch-size"}},
          {"TRAIN --num_train_epochs 3", 2, {"--epochs"}},
          {"TRAIN --load_in_4bit", 2, {"QLoRA", "--base-weights nf4 --lora 16"}},
          {"TRAIN --load_in_8bit True", 2, {"--base-weights 8bit --lora 16"}},
          {"generate --model r --prompt a --load_in_4bit", 2, {"--base-weights nf4", "!--lora"}},
          {"TRAIN --bf16", 2, {"--precision bf16"}},
          {"TRAIN --fp8", 2, {"--precision fp8"}},
          {"TRAIN --gradient_checkpointing True", 2, {"--recompute block"}},
          {"TRAIN --dataset_name x", 2, {"--data"}},
          {"TRAIN --output_dir o", 2, {"--out"}},
          {"TRAIN --overwrite_output_dir", 2, {"leave it out", "--out"}},
          {"TRAIN --warmup_ratio 0.1", 2, {"--warmup-steps N", "--steps"}},
          {"TRAIN --push_to_hub", 2, {"leave it out", "spillway export"}},
          {"TRAIN --report_to wandb", 2, {"metrics.jsonl"}},
          {"TRAIN --lr_scheduler_type cosine", 2, {"--lr-schedule"}},
          {"TRAIN --max_seq_length 64", 2, {"--sequence-length"}},
          {"TRAIN --use_peft --lora_r 8", 2, {"--lora RANK"}},
          {"TRAIN --lora_target_modules q_proj v_proj", 2, {"--lora-targets"}},
          {"TRAIN --do_train", 2, {"leave it out"}},
          {"TRAIN --trust_remote_code True", 2, {"leave it out"}},
          {"TRAIN --fsdp full_shard", 2, {"--zero-stage"}},
          {"TRAIN --torch_compile", 2, {"leave it out"}},
          {"TRAIN --group_by_length", 2, {"--packing on"}},
          {"TRAIN --neftune_noise_alpha 5", 2, {"!did you mean", "--help=all"}},
          {"TRAIN --deepspeed_config x", 2, {"--deepspeed"}},
          {"TRAIN --zero_stage 3", 2, {"--zero-stage"}},
          {"TRAIN --offload_optimizer cpu", 2, {"--place-optimizer host"}},
          {"train -i @/t.txt -e gpt2-tiny", 2, {"[-i]", "--data"}},
          {"TRAIN -j v.txt", 2, {"--validation-data"}},
          {"TRAIN -b 4", 2, {"--micro-batch-size"}},
          {"TRAIN -t 64", 2, {"--sequence-length"}},
          {"TRAIN -l 1e-4", 2, {"--learning-rate"}},
          {"generate --model r -p hello", 2, {"--prompt"}},
          {"TRAIN --n_layer=4", 2, {"config.json"}},
          {"TRAIN --compile=False", 2, {"leave it out"}},
          {"TRAIN --nproc_per_node 2", 2, {"--ranks"}},
          {"TRAIN --nnodes 2", 2, {"torchrun"}},
          {"TRAIN --standalone", 2, {"--ranks N"}},
          {"TRAIN --rdzv_endpoint h:1", 2, {"--rendezvous"}}});
}

TEST_F(WrongLines, UnitsAndNumbers) {
  expect({{"TRAIN --memory 10GB", 2, {"--device-memory"}},
          {"TRAIN --device-memory 10GBs", 2, {"10GBs", "write 10GB"}},
          {"TRAIN --device-memory 1.5.GB", 2, {"1.5.GB"}},
          {"TRAIN --device-memory 16", 2, {"640MiB"}},
          {"TRAIN --device-memory -1GB", 2, {"-1GB"}},
          {"TRAIN --time-limit 5minutes", 2, {"write 5m"}},
          {"TRAIN --time-limit 1e3", 2, {"1e3"}},
          {"TRAIN --checkpoint-every 10steps", 2, {"[--checkpoint-every]", "write 10"}},
          {"TRAIN --checkpoint-every often", 2, {"500", "30m", "1epoch"}},
          {"TRAIN --checkpoint-every 0", 2, {"got \"0\""}},
          {"train --model gpt2-tiny --data @/t.txt --steps 1e3", 2, {"write 1000"}},
          {"train --model gpt2-tiny --data @/t.txt --steps 2.5", 2, {"2.5", "!write"}},
          {"train --model gpt2-tiny --data @/t.txt --steps -3", 2, {"-3"}},
          {"TRAIN --learning-rate -1e-3", 2, {"-1e-3"}},
          {"TRAIN --micro-batch-size 0", 2, {"at least 1"}},
          {"TRAIN --sequence-length 4096", 2, {"--sequence-length", "256", "4096"}},
          {"TRAIN --epochs 1", 2, {"--epochs", "--steps", "leave one out"}},
          {"TRAIN --ranks 5000", 2, {"1024", "5000"}},
          {"TRAIN --lora 8 --place-activations nvme", 2, {"--nvme PATH"}},
          {"TRAIN --device-memory 1MiB --host-memory 1MiB", 3, {"1.00 MiB"}}});
}

TEST_F(WrongLines, CombinationsNameTheFlagToLeaveOut) {
  expect({{"TRAIN --validate-every 5", 2, {"--validation-data", "leave --validate-every out"}},
          {"TRAIN --prompt a", 2, {"--sample-every", "leave --prompt out"}},
          {"TRAIN --lr-schedule onecycle --warmup-steps 5", 2, {"leave --warmup-steps out"}},
          {"TRAIN --gradient-reduction micro-batch --zero-stage 1", 2, {"leave --gradient-reduction or --zero-stage out"}},
          {"TRAIN --histograms-every 5 --tensorboard off", 2, {"--histograms-every", "leave one"}},
          {"TRAIN --momentum 0.9", 2, {"[--momentum]", "leave it out"}},
          {"TRAIN --gradient-accumulation-steps 2 --global-batch-size 4", 2, {"leave one out"}},
          {"TRAIN --base-weights nf4", 2, {"--lora RANK", "leave --base-weights out"}},
          {"TRAIN --lora-alpha 8", 2, {"--lora RANK", "leave these flags out"}},
          {"TRAIN --lora 8", 2, {"[--lora]", "leave it out"}},
          {"TRAIN --gradient-dtype bf16 --precision fp64", 2, {"leave --gradient-dtype out"}},
          {"chat r --ranks 2", 2, {"leave --ranks out"}}});
}

TEST_F(WrongLines, DataThatCannotBeRead) {
  folder_.write("bad.jsonl", "{\"text\": \"a\"}\n{\"text\": \n");
  folder_.write("cols.jsonl", "{\"question\": \"a\", \"answer\": \"b\"}\n");
  folder_.write("short.bin", "a");
  for (const char* name : {"empty.txt", "empty.jsonl"}) folder_.write(name, "");
  for (const char* name : {"a.csv", "a.parquet", "a.json", "a.arrow", "a.zip", "a.npy", "a.pdf", "in/a.csv"}) folder_.write(name, "x");
  const std::vector<std::string> formats = {".txt", ".jsonl", ".bin", "token"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), formats.begin(), formats.end());
    return more;
  };
  expect({{"train --model gpt2-tiny --data @/a.csv", 2, with({"a.csv", "read_csv"})},
          {"train --model gpt2-tiny --data @/a.parquet", 2, with({"read_parquet"})},
          {"train --model gpt2-tiny --data @/a.json", 2, with({"jq"})},
          {"train --model gpt2-tiny --data @/a.arrow", 2, with({"from_file"})},
          {"train --model gpt2-tiny --data @/a.zip", 2, with({"unpack"})},
          {"train --model gpt2-tiny --data @/a.npy", 2, with({"tofile"})},
          {"train --model gpt2-tiny --data @/a.pdf", 2, with({"extract"})},
          {"train --model gpt2-tiny --data @/in", 2, with({"a.csv", "read_csv"})},
          {"train --model gpt2-tiny --data @/empty.txt", 2, {"empty.txt", "empty file"}},
          {"TRAIN --data @/bad.jsonl", 4, {"bad.jsonl", "line 2"}},
          {"train --model gpt2-tiny --out @/out --data @/empty.jsonl", 2, {"empty.jsonl", "got none"}},
          {"train --model gpt2-tiny --out @/out --data @/cols.jsonl", 4, {"question, answer", "messages", "rename"}},
          {"train --model gpt2-tiny --data @/short.bin", 4, {"short.bin", "odd"}},
          {"train --model gpt2-tiny --data @/none.txt", 4, {"none.txt is not there", "!download"}},
          {"train --model gpt2-tiny --data tatsu-lab/alpaca", 4, {"downloaded", "load_dataset(\"tatsu-lab/alpaca\""}},
          {"train --model gpt2-tiny --data wikitext", 4, {"downloaded", "load_dataset"}},
          {"train --model gpt2-tiny --data https://example.org/x.txt", 4, {"downloaded", "curl"}},
          {"train --model gpt2-tiny --data s3://bucket/x.txt", 4, {"downloaded", "copy"}},
          {"train --model gpt2-tiny --data ~/t.txt", 4, {"~/t.txt", "home"}},
          {"train --model resnet20 --data @/t.txt", 2, {"CIFAR-10", "IDX", "folder of images"}},
          {"TRAIN --tokenizer gpt2", 2, {"[--tokenizer]", "tokenizer.json", "download"}}});
}

TEST_F(WrongLines, ConfigurationsAndRuns) {
  folder_.write("bad.json", R"({"zero_optimization": {"stage": 3,}})");
  folder_.write("key.json", R"({"train_batch_size": 8, "zero_optimisation": {"stage": 3}})");
  folder_.write("batch.json", R"({"train_batch_size": 8, "train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 1})");
  folder_.write("config.json", R"({"model": "gpt2-tiny", "learningrate": 1e-3})");
  folder_.write("type.json", R"({"model": "gpt2-tiny", "steps": "ten"})");
  ASSERT_EQ(run_app({"train", "--model", "gpt2-tiny", "--data", (folder_.path() / "t.txt").string(), "--steps", "1", "--sequence-length",
                     "64", "--device", "cpu", "--quiet", "--out", (folder_.path() / "run").string()})
                .status,
            0);
  const char* const again = "train --model gpt2-tiny --data @/t.txt --steps 1 --device cpu --out @/run --sequence-length 32";
  expect({{"TRAIN --deepspeed @/bad.json", 2, {"bad.json", "line 1"}},
          {"TRAIN --deepspeed @/key.json", 2, {"mean zero_optimization?"}},
          {"TRAIN --deepspeed @/batch.json", 2, {"8", "3"}},
          {"TRAIN --deepspeed @/none.json", 2, {"none.json"}},
          {"TRAIN --deepspeed", 2, {"[--deepspeed] expected a value"}},
          {"train --config @/config.json", 2, {"mean \"learning_rate\"?", "config.json"}},
          {"train --config @/type.json", 2, {"steps", "ten", "type.json"}},
          {"train --config @/t.txt", 2, {"t.txt", "JSON"}},
          {"TRAIN --resume must", 4, {"--resume"}},
          {again, 2, {"sequence_length: 64 -> 32", "--out"}},
          {"train --model gpt2-tiny --data @/t.txt --steps 1 --device cpu --out @/run --resume never", 2, {"--resume", "--out"}},
          {"train --model gpt2-tiny --data @/t.txt --steps 1 --device cpu --out @/t.txt/x", 2, {"--out"}},
          {"TRAIN --nvme @/t.txt:1GiB", 2, {"not a folder"}},
          {"status @/nope", 4, {"nope"}},
          {"inspect @/nope", 4, {"nope"}}});
}

}  // namespace
}  // namespace spillway::app::wrong_lines_test
