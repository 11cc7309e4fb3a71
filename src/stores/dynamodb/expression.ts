import type { AttributeValue } from "@aws-sdk/client-dynamodb";
import type { Item } from "./values.ts";

/** The parts of one request that are said in DynamoDB's language of expressions, with names and values by placeholders. */
export class Expression {
  readonly #names: Record<string, string> = {};
  readonly #values: Record<string, AttributeValue> = {};
  #count = 0;

  name(name: string): string {
    const placeholder = `#${name}`;
    this.#names[placeholder] = name;
    return placeholder;
  }

  value(value: AttributeValue): string {
    this.#count += 1;
    const placeholder = `:${this.#count}`;
    this.#values[placeholder] = value;
    return placeholder;
  }

  /** Every one of these attributes has this value. */
  equal(attributes: Readonly<Item>): string {
    return Object.entries(attributes)
      .map(([name, value]) => `${this.name(name)} = ${this.value(value)}`)
      .join(" AND ");
  }

  exists(name: string): string {
    return `attribute_exists(${this.name(name)})`;
  }

  notExists(name: string): string {
    return `attribute_not_exists(${this.name(name)})`;
  }

  changes({ set = {}, remove = [], add = {} }: Changes): string {
    const settings = Object.entries(set).map(([name, value]) => `${this.name(name)} = ${this.value(value)}`);
    const parts = [];
    if (settings.length > 0) parts.push(`SET ${settings.join(", ")}`);
    if (remove.length > 0) parts.push(`REMOVE ${remove.map((name) => this.name(name)).join(", ")}`);
    const additions = Object.entries(add).map(
      ([name, by]) => `${this.name(name)} ${this.value({ N: String(by) })}`,
    );
    if (additions.length > 0) parts.push(`ADD ${additions.join(", ")}`);
    return parts.join(" ");
  }

  /** Only these attributes, with all placeholders so far. */
  projection(names: readonly string[]): Placeholders & { readonly ProjectionExpression: string } {
    const ProjectionExpression = names.map((name) => this.name(name)).join(", ");
    return { ProjectionExpression, ...this.placeholders };
  }

  get placeholders(): Placeholders {
    const hasValues = this.#count > 0;
    return {
      ExpressionAttributeNames: this.#names,
      ...(hasValues ? { ExpressionAttributeValues: this.#values } : {}),
    };
  }
}

export interface Changes {
  readonly set?: Readonly<Item>;
  readonly remove?: readonly string[];
  readonly add?: Readonly<Record<string, number>>;
}

interface Placeholders {
  readonly ExpressionAttributeNames: Record<string, string>;
  readonly ExpressionAttributeValues?: Record<string, AttributeValue>;
}
