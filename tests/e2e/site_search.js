// node site_search.js SITE: looks for what users type, with the search of the site's pages, and names the queries whose first answer is on
// another page than the one that treats them. Exit status 1 if there is one.
'use strict';
const fs = require('fs');
const path = require('path');

const search = path.join(process.argv[2], 'search');
const lunr = require(path.resolve(search, 'lunr.js'));
const index = JSON.parse(fs.readFileSync(path.join(search, 'search_index.json'), 'utf8'));
require(path.resolve(search, 'rank.js'));
const find = globalThis.spillwaySearcher(lunr, index.docs);

// What is typed, and the pages on which the first answer may be.
const expected = [
  ['offload', 'memory'],
  ['cpu offload', 'memory|faq'],
  ['nvme offload', 'memory|faq'],
  ['offload optimizer', 'memory|faq'],
  ['wandb', 'faq|watching'],
  ['tensorboard', 'watching|faq'],
  ['per_device_train_batch_size', 'faq|coming-from'],
  ['--per_device_train_batch_size', 'faq|coming-from'],
  ['gradient_accumulation_steps', 'faq|coming-from'],
  ['gradient checkpointing', 'memory|faq'],
  ['activation checkpointing', 'memory|faq'],
  ['QLoRA', 'fine-tuning|faq'],
  ['load_in_4bit', 'faq'],
  ['lora', 'fine-tuning'],
  ['SFT', 'fine-tuning'],
  ['mixed precision', 'memory|faq'],
  ['fp16', 'memory|faq'],
  ['CUDA out of memory', 'faq'],
  ['Killed', 'faq'],
  ['loss is nan', 'faq'],
  ['parquet', 'faq'],
  ['resume', 'checkpoints|faq'],
  ['resume refuses', 'faq'],
  ['zero stage 3', 'ranks'],
  ['FSDP', 'faq|coming-from|models|torch'],
  ['torchrun', 'ranks|coming-from|faq'],
  ['slurm', 'clusters'],
  ['muon', 'memory'],
  ['ema', 'memory'],
  ['gguf', 'models'],
  ['onnx', 'models'],
  ['tokenizer', 'data'],
  ['exit status', 'troubleshooting'],
  ['which models', 'models'],
  ['what fits', 'what-fits'],
  ['generate text', 'generation'],
  ['nn.Module', 'faq|python|library|torch'],
  ['PyTorch model', 'torch|faq'],
  ['torch.compile', 'torch'],
  ['DataLoader', 'torch|python'],
  ['--lora-alpha', 'commands'],
  ['--gradient-clipping', 'commands'],
];
let wrong = 0;
for (const [query, pages] of expected) {
  const first = find(query).slice(0, 3).map(function (page) { return page.location; });
  if (!new RegExp('^(' + pages + ')\\.html').test(first[0] || '')) {
    console.log(query + ': expected ' + pages + ' first, got ' + (first.join(', ') || 'nothing'));
    ++wrong;
  }
}
console.log(expected.length - wrong + ' of ' + expected.length + ' queries find their page first');
process.exit(wrong > 0 ? 1 : 0);
