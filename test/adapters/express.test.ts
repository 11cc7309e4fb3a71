import { topics } from "./behaviour/topics.ts";
import { expressVersions } from "./frameworks/express.ts";
import { describeAdapter } from "./harness.ts";

for (const express of expressVersions) describeAdapter(express, topics);
