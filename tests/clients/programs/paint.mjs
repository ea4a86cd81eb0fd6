// paint.py in JavaScript.

import { z } from "zod";

export const Paint = z.object({ colour: z.literal("green"), count: z.literal(3) });
export const PAINT = { colour: "green", count: 3 };
